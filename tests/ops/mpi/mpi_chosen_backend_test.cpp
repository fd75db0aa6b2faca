// Tests which algorithm a call takes over MPI, and that all ranks choose the same.
#include "mpi/mpi_chosen_backend.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include <hvd/ops/internal/backends.hpp>

#include "mpi/mpi_chosen_backend.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test
using std::chrono::microseconds;

Timing sample(std::size_t bytes, double collective, double ring, OpKind kind = OpKind::allreduce) {
  return {.kind = kind, .bytes = bytes, .times = {collective, ring}};
}

TEST(MpiTablesTest, WithoutSamplesEverythingIsMpis) {
  const MpiTables tables;
  EXPECT_EQ(tables.of(OpKind::allreduce, 0), Algorithm::collective);
  EXPECT_EQ(tables.of(OpKind::allreduce, std::size_t{1} << 40), Algorithm::collective);
  EXPECT_EQ(MpiTables(mpi_plan({})).of(OpKind::broadcast, 1), Algorithm::collective);
}

TEST(MpiTablesTest, OperationsAreChosenApart) {
  const std::vector<Timing> samples{sample(1'000, 10, 5, OpKind::broadcast),
                                    sample(1'000, 5, 10, OpKind::allgather)};
  const MpiTables tables(mpi_plan(samples));
  EXPECT_EQ(tables.of(OpKind::broadcast, 1'000), Algorithm::ring);
  EXPECT_EQ(tables.of(OpKind::allgather, 1'000), Algorithm::collective);
  EXPECT_EQ(tables.of(OpKind::allreduce, 1'000), Algorithm::collective);
  EXPECT_EQ(tables.of(OpKind::barrier, 1'000), Algorithm::collective);
}

TEST(MpiTablesTest, ThePlanIsOneLine) {
  const std::vector<Timing> samples{sample(64, 1, 2), sample(4096, 9, 2, OpKind::broadcast)};
  EXPECT_EQ(mpi_plan(samples).text(),
            "mpi/allgather=collective mpi/allreduce=collective mpi/broadcast=ring "
            "mpi/reducescatter=collective");
}

/// Returns the measurements of each of three ranks, which are threads.
std::vector<std::vector<Timing>> measure(microseconds budget) {
  constexpr int kRanks = 3;
  auto some = make_in_process_transports(kRanks);
  auto others = make_in_process_transports(kRanks);
  std::vector<std::vector<Timing>> samples(kRanks);
  expect_threads(kRanks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto collective = make_ring_backend(std::move(some[r]));
    const auto ring = make_ring_backend(std::move(others[r]));
    samples[r] = measure_mpi(*collective, *ring,
                             {.rank = rank,
                              .size = kRanks,
                              .deadline = Clock::now() + std::chrono::seconds(30),
                              .budget = budget});
  });
  return samples;
}

TEST(MpiMeasurementTest, EveryRankLearnsRankZerosTimes) {
  const auto samples = measure(std::chrono::seconds(20));
  ASSERT_GE(samples[0].size(), 4U);
  for (const auto& theirs : samples) {
    ASSERT_EQ(theirs.size(), samples[0].size());
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      EXPECT_EQ(theirs[i].kind, samples[0][i].kind);
      EXPECT_EQ(theirs[i].bytes, samples[0][i].bytes);
      ASSERT_EQ(theirs[i].times.size(), 2U);
      EXPECT_GT(theirs[i].times[0], 0);
      EXPECT_EQ(theirs[i].times, samples[0][i].times);
    }
  }
}

TEST(MpiMeasurementTest, NothingIsMeasuredWithoutTime) {
  for (const auto& theirs : measure(microseconds(0))) EXPECT_THAT(theirs, testing::IsEmpty());
}

TEST(MpiMeasurementTest, LargeSizesAreLeftOutFirst) {
  const auto samples = measure(microseconds(1));
  ASSERT_LE(samples[0].size(), 1U);
  for (const Timing& measured : samples[0]) EXPECT_LE(measured.bytes, 256U);
}

/// A backend that records its calls.
class Recorder final : public Backend {
 public:
  Recorder(std::string name, std::vector<std::string>& calls)
      : name_(std::move(name)), calls_(calls) {}

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] bool supports(OpKind, Device, DType dtype, ReduceOp) const noexcept override {
    return name_ != "ring" || dtype != DType::boolean;
  }
  void allreduce(const AllreduceCall&, Deadline) override { record("allreduce"); }
  void allgather(const AllgatherCall&, Deadline) override { record("allgather"); }
  void broadcast(const BroadcastCall&, Deadline) override { record("broadcast"); }
  void reducescatter(const ReducescatterCall&, Deadline) override { record("reducescatter"); }
  void alltoall(const AlltoallCall&, Deadline) override { record("alltoall"); }
  void barrier(Deadline) override { record("barrier"); }
  [[nodiscard]] std::unique_ptr<Backend> subset(std::span<const int>, Deadline) override {
    return std::make_unique<Recorder>(name_, calls_);
  }
  void abort() noexcept override { record("abort"); }

 private:
  void record(const std::string& call) { calls_.push_back(name_ + " " + call); }

  std::string name_;
  std::vector<std::string>& calls_;
};

class MpiChosenBackendTest : public testing::Test {
 protected:
  /// Uses the ring from 1,000 bytes on.
  static MpiTables from_1000() {
    std::vector<Timing> samples;
    for (const OpKind kind :
         {OpKind::allreduce, OpKind::allgather, OpKind::broadcast, OpKind::reducescatter}) {
      samples.push_back(sample(100, 1, 9, kind));
      samples.push_back(sample(10'000, 9, 1, kind));
    }
    return MpiTables(mpi_plan(samples));
  }

  /// Reduces `count` elements, whose values do not matter.
  void allreduce(Backend& backend, std::int64_t count, DType dtype = DType::f32) {
    const TensorSlice tensor{nullptr, nullptr, count};
    backend.allreduce({.tensors = {&tensor, 1}, .device = {}, .dtype = dtype}, Clock::now());
  }

  std::vector<std::string> calls_;
  MpiChosenBackend backend_{std::make_unique<Recorder>("mpi", calls_),
                            std::make_unique<Recorder>("ring", calls_), from_1000()};
};

using testing::ElementsAre;

TEST_F(MpiChosenBackendTest, GoesByTheBytesOfAllTensorsAndRanks) {
  allreduce(backend_, 249);
  allreduce(backend_, 250);
  allreduce(backend_, 999, DType::u8);
  const std::vector<std::int64_t> counts{100, 0, 150};
  const GatherSlice gathered{nullptr, nullptr, counts};
  backend_.allgather({.tensors = {&gathered, 1}, .device = {}}, Clock::now());
  const ScatterSlice scattered{nullptr, nullptr, counts};
  backend_.reducescatter({.tensors = {&scattered, 1}, .device = {}, .dtype = DType::bf16},
                         Clock::now());
  EXPECT_THAT(calls_, ElementsAre("mpi allreduce", "ring allreduce", "mpi allreduce",
                                  "ring allgather", "mpi reducescatter"));
}

TEST_F(MpiChosenBackendTest, WhatTheRingCannotDoIsMpis) {
  allreduce(backend_, 5'000, DType::boolean);
  backend_.alltoall({}, Clock::now());
  backend_.barrier(Clock::now());
  EXPECT_THAT(calls_, ElementsAre("mpi allreduce", "mpi alltoall", "mpi barrier"));
}

TEST_F(MpiChosenBackendTest, ASubsetChoosesInTheSameWay) {
  const auto part = backend_.subset(std::vector<int>{0}, Clock::now());
  allreduce(*part, 249);
  allreduce(*part, 250);
  EXPECT_THAT(calls_, ElementsAre("mpi allreduce", "ring allreduce"));
}

TEST_F(MpiChosenBackendTest, AbortReachesBothWays) {
  backend_.abort();
  EXPECT_THAT(calls_, testing::UnorderedElementsAre("mpi abort", "ring abort"));
}

}  // namespace
}  // namespace hvd::test
