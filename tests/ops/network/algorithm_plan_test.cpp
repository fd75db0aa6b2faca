// Tests algorithm plans: as text, from times, from the cost of a link, in a file, and the agreement
// of ranks on one.
#include "tuning/algorithm_plan.hpp"

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>
#include <unistd.h>

#include <hvd/core/internal/session.hpp>
#include <hvd/core/store.hpp>
#include <hvd/hvd.hpp>

#include "tuning/agree_on_plan.hpp"
#include "tuning/algorithm_plan.hpp"
#include "tuning/link_cost.hpp"
#include "tuning/measure.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test
using testing::HasSubstr;

TEST(AlgorithmTableTest, AreTextAndBack) {
  AlgorithmTable table(Algorithm::leaders);
  table.from(16384, Algorithm::lanes, 2097152);
  EXPECT_EQ(table.text(), "leaders,16384:lanes/2097152");
  EXPECT_EQ(AlgorithmTable::parse(table.text()), table);
  EXPECT_EQ(AlgorithmTable::parse("ring"), AlgorithmTable(Algorithm::ring));
}

TEST(AlgorithmTableTest, ABoundBelongsToWhatFollows) {
  const AlgorithmTable table = AlgorithmTable::parse("doubling,100:ring/7");
  EXPECT_EQ(table.at(0), Algorithm::doubling);
  EXPECT_EQ(table.at(99), Algorithm::doubling);
  EXPECT_EQ(table.segment_at(99), 0U);
  EXPECT_EQ(table.at(100), Algorithm::ring);
  EXPECT_EQ(table.segment_at(std::size_t{1} << 50), 7U);
  EXPECT_TRUE(table.uses(Algorithm::ring));
  EXPECT_FALSE(table.uses(Algorithm::flat));
}

TEST(AlgorithmTableTest, TheSameAlgorithmTwiceIsOneEntry) {
  AlgorithmTable table(Algorithm::ring);
  EXPECT_EQ(table.from(5, Algorithm::ring).text(), "ring");
}

TEST(AlgorithmTableTest, NonsenseIsRefused) {
  for (const char* text :
       {"", "fast", "ring,", "ring,5", "5:ring", "ring,x:flat", "ring,9:flat,9:ring", "ring/-1",
        "ring/", "ring,0:flat", "ring/9223372036854775808"}) {
    EXPECT_EQ(error_of([&] { static_cast<void>(AlgorithmTable::parse(text)); }).code(),
              Errc::invalid_argument)
        << text;
  }
}

TEST(PlanTest, IsTextAndBack) {
  const AlgorithmPlan plan =
      AlgorithmPlan()
          .set(AlgorithmPlan::kRing, AlgorithmTable(Algorithm::doubling))
          .set(AlgorithmPlan::kHosts, AlgorithmTable(Algorithm::flat))
          .set(AlgorithmPlan::mpi(OpKind::allgather), AlgorithmTable::parse("collective,8:ring"));
  EXPECT_EQ(plan.text(), "hosts=flat mpi/allgather=collective,8:ring ring=doubling");
  EXPECT_EQ(AlgorithmPlan::parse(plan.text()), plan);
  EXPECT_EQ(AlgorithmPlan::parse(""), AlgorithmPlan());
}

TEST(PlanTest, PartsHaveTheirOwnAlgorithms) {
  for (const char* text : {"ring=lanes", "hosts=ring", "mpi/barrier=ring", "rings=ring", "ring",
                           "mpi/allreduce=collective,5:leaders"}) {
    EXPECT_EQ(error_of([&] { static_cast<void>(AlgorithmPlan::parse(text)); }).code(),
              Errc::invalid_argument)
        << text;
  }
}

TEST(PlanTest, WhatItDoesNotSayIsTheDefault) {
  const AlgorithmPlan defaults = AlgorithmPlan()
                                     .set(AlgorithmPlan::kRing, AlgorithmTable(Algorithm::ring))
                                     .set(AlgorithmPlan::kHosts, AlgorithmTable(Algorithm::flat));
  const AlgorithmPlan plan = AlgorithmPlan::parse("hosts=leaders mpi/broadcast=ring");
  EXPECT_EQ(plan.over(defaults).text(), "hosts=leaders ring=ring");
  EXPECT_EQ(plan.of(AlgorithmPlan::kRing, AlgorithmTable(Algorithm::doubling)).text(), "doubling");
}

const std::vector<Candidate> kTwo{{Algorithm::collective, 0}, {Algorithm::ring, 4}};

Timing sample(std::size_t bytes, double collective, double ring) {
  return {.kind = OpKind::allreduce, .bytes = bytes, .times = {collective, ring}};
}

AlgorithmTable chosen(const std::vector<Timing>& samples) {
  return choose(OpKind::allreduce, samples, kTwo, AlgorithmTable(Algorithm::collective));
}

TEST(ChooseTest, ASizeGoesTheWayOfTheNearestByRatio) {
  EXPECT_EQ(chosen({sample(100, 10, 5), sample(10'000, 10, 20)}).text(), "ring/4,1000:collective");
  EXPECT_EQ(chosen({sample(10'000, 10, 20), sample(100, 10, 5)}).text(), "ring/4,1000:collective");
  EXPECT_EQ(chosen({sample(1, 9, 9), sample(4, 9, 1), sample(16, 9, 1)}).text(),
            "collective,2:ring/4");
}

TEST(ChooseTest, AnotherWayMustBeClearlyFaster) {
  EXPECT_EQ(chosen({sample(1'000, 100, 99)}), AlgorithmTable(Algorithm::collective));
  EXPECT_EQ(chosen({sample(1'000, 100, 86)}), AlgorithmTable(Algorithm::collective));
  EXPECT_EQ(chosen({sample(1'000, 100, 84)}), AlgorithmTable(Algorithm::ring, 4));
  EXPECT_EQ(choose(OpKind::allreduce, std::vector{sample(1'000, 84, 100)}, kTwo,
                   AlgorithmTable(Algorithm::ring)),
            AlgorithmTable(Algorithm::collective));
}

TEST(ChooseTest, WithoutSamplesTheDefaultHolds) {
  EXPECT_EQ(chosen({}), AlgorithmTable(Algorithm::collective));
  EXPECT_EQ(choose(OpKind::broadcast, std::vector{sample(1, 9, 1)}, kTwo,
                   AlgorithmTable(Algorithm::collective)),
            AlgorithmTable(Algorithm::collective));
}

TEST(ChooseTest, SaysWhy) {
  EXPECT_EQ(describe(sample(65'536, 11, 7.5), kTwo, AlgorithmTable(Algorithm::collective)),
            "allreduce 65536 B: collective 11.0 µs, ring 7.5 µs: ring");
}

TEST(LinkCostTest, DoublingEndsWhereTheRingWouldBeFaster) {
  // With 4 ranks, doubling takes 2·latency + bytes/bandwidth, and the ring 6·latency +
  // bytes/(2·bandwidth). Both take as long at 8·latency·bandwidth.
  const LinkCost cost{.latency_us = 10, .bytes_per_us = 100};
  EXPECT_EQ(ring_table(cost, 4).text(), "doubling,4097:ring") << "8,000 rounded down";
  const auto bound = [](double latency, double bandwidth, int ranks) {
    const AlgorithmTable table = ring_table({latency, bandwidth}, ranks);
    std::size_t bytes = 1;
    while (table.at(bytes + 1) == Algorithm::doubling) bytes *= 2;
    return bytes;
  };
  EXPECT_LE(bound(1, 100, 8), bound(50, 100, 8)) << "slower turns, fewer of them";
  EXPECT_LE(bound(50, 10, 8), bound(50, 1'000, 8)) << "cheaper bytes, more of them";
  EXPECT_EQ(ring_table({0, 1}, 3).at(1025), Algorithm::ring);
  EXPECT_EQ(ring_table({1e9, 1e9}, 64).at(1 << 20), Algorithm::ring) << "never all";
}

TEST(LinkCostTest, SegmentsGrowWithWhatARoundCosts) {
  const auto gigabit = segment_for({.latency_us = 30, .bytes_per_us = 119}, 2);
  const auto ten = segment_for({.latency_us = 30, .bytes_per_us = 1'190}, 2);
  const auto far = segment_for({.latency_us = 5'000, .bytes_per_us = 1'190}, 2);
  EXPECT_LE(gigabit, ten);
  EXPECT_LE(ten, far);
  EXPECT_GE(gigabit, std::size_t{1} << 20);
  EXPECT_LE(far, std::size_t{8} << 20);
}

class PlanFileTest : public testing::Test {
 protected:
  ~PlanFileTest() override { std::remove(path_.c_str()); }
  [[nodiscard]] std::string content() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }

  const std::string path_ = testing::TempDir() + "hvd-plan-" + std::to_string(::getpid());
  const AlgorithmPlan ring_ = AlgorithmPlan::parse("ring=ring");
  const AlgorithmPlan doubling_ = AlgorithmPlan::parse("ring=doubling");
};

TEST_F(PlanFileTest, KeepsALineForEachTopology) {
  EXPECT_EQ(load_plan(path_, "tcp/2"), std::nullopt);
  save_plan(path_, "tcp/2", ring_);
  save_plan(path_, "tcp/2+2", doubling_);
  EXPECT_EQ(load_plan(path_, "tcp/2"), ring_);
  EXPECT_EQ(load_plan(path_, "tcp/2+2"), doubling_);
  save_plan(path_, "tcp/2", doubling_);
  EXPECT_EQ(content(), "tcp/2+2 ring=doubling\ntcp/2 ring=doubling\n");
}

TEST_F(PlanFileTest, ALineThatMakesNoSenseIsNamed) {
  write("tcp/2 ring=fast\n");
  const Error error = error_of([&] { static_cast<void>(load_plan(path_, "tcp/2")); });
  EXPECT_EQ(error.code(), Errc::invalid_argument);
  EXPECT_THAT(error.what(), HasSubstr(path_));
}

TEST_F(PlanFileTest, AFolderThatIsNotThereIsAnError) {
  const std::string nowhere = "/no/such/folder/plan";
  EXPECT_EQ(load_plan(nowhere, "tcp/2"), std::nullopt);
  EXPECT_EQ(error_of([&] { save_plan(nowhere, "tcp/2", ring_); }).code(), Errc::resource);
}

TEST_F(PlanFileTest, AFullDiskLeavesTheFileAsItIs) {
  save_plan(path_, "tcp/2", ring_);
  // The new file is written beside the old one under this name, and here every write to it fails.
  const std::string temporary = path_ + "." + std::to_string(::getpid());
  ASSERT_EQ(::symlink("/dev/full", temporary.c_str()), 0);
  const Error error = error_of([&] { save_plan(path_, "tcp/2+2", doubling_); });
  ASSERT_EQ(error.code(), Errc::resource);
  EXPECT_THAT(error.what(), HasSubstr("No space left on device"));
  EXPECT_EQ(content(), "tcp/2 ring=ring\n");
  EXPECT_FALSE(std::filesystem::is_symlink(temporary));
}

TEST_F(PlanFileTest, AFileThatCannotBeReadIsAnError) {
  ASSERT_TRUE(std::filesystem::create_directory(path_));
  const Error loaded = error_of([&] { static_cast<void>(load_plan(path_, "tcp/2")); });
  EXPECT_EQ(loaded.code(), Errc::resource);
  EXPECT_THAT(loaded.what(), HasSubstr(path_ + ": Is a directory"));
  EXPECT_EQ(error_of([&] { save_plan(path_, "tcp/2", ring_); }).code(), Errc::resource);
}

/// Lets three ranks, each of which measures something else, agree on a plan.
class AgreementTest : public PlanFileTest {
 protected:
  std::vector<std::string> agree(const std::string& plan, const std::string& path = "") {
    measured_ = 0;
    const auto store = make_hash_store();
    std::vector<std::string> plans(kRanks);
    expect_threads(kRanks, [&](int rank) {
      Config config = thread_config(rank, kRanks);
      if (rank == 0) {  // the others' settings do not count
        config.plan = plan;
        config.plan_file = path;
      }
      Session session(config, store);
      const auto measure = [&] {
        ++measured_;
        return AlgorithmPlan().set(AlgorithmPlan::kRing,
                                   AlgorithmTable(Algorithm::doubling)
                                       .from(static_cast<std::size_t>(rank) + 1, Algorithm::ring));
      };
      try {
        plans[static_cast<std::size_t>(rank)] =
            agree_on_plan(session, {.engine = "tcp",
                                    .defaults = AlgorithmPlan().set(
                                        AlgorithmPlan::kRing, AlgorithmTable(Algorithm::ring)),
                                    .measure = measure})
                .text();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        plans[static_cast<std::size_t>(rank)] = error.what();
      }
    });
    return plans;
  }

  static constexpr int kRanks = 3;
  std::atomic<int> measured_{0};
};

TEST_F(PlanFileTest, ManyRanksOnAHostUseDoublingUpToItsLimitWithoutAMeasurement) {
  Config config = thread_config(0, 1);
  config.plan_file = path_;
  config.start_timeout = config.collective_timeout = std::chrono::minutes(2);
  threads(
      129, [](Context& own) { EXPECT_EQ(own.size(), 129); }, config);
  EXPECT_EQ(content(), "tcp/129/streams=0 ring=doubling,131073:ring\n");
}

TEST(PlanSignature, SaysWhichRanksShareHosts) {
  EXPECT_EQ(plan_signature("tcp", std::vector{0, 0, 0, 1, 1, 2}, 4), "tcp/3+2+1/streams=4");
  EXPECT_EQ(plan_signature("tcp", std::vector{0, 0, 1, 1}, 0), "tcp/2+2/streams=0");
  EXPECT_EQ(plan_signature("tcp", std::vector{0, 1, 0, 1}, 0), "tcp/2+2/order=0,1,0,1/streams=0");
  EXPECT_EQ(plan_signature("tcp", std::vector{0, 1, 1, 0}, 0), "tcp/2+2/order=0,1,1,0/streams=0");
}

TEST_F(AgreementTest, RankZerosMeasurementCounts) {
  EXPECT_THAT(agree("auto"), testing::Each("ring=doubling,1:ring"));
  EXPECT_EQ(measured_, kRanks);
}

TEST_F(AgreementTest, NothingIsMeasuredWhenItIsSaid) {
  EXPECT_THAT(agree("default"), testing::Each("ring=ring"));
  EXPECT_THAT(agree("ring=doubling hosts=flat"), testing::Each("ring=doubling"));
  EXPECT_EQ(measured_, 0);
}

TEST_F(AgreementTest, NonsenseIsRefusedOnEveryRank) {
  EXPECT_THAT(agree("ring=fast"), testing::Each(HasSubstr("HVD_PLAN: 'fast'")));
}

TEST_F(AgreementTest, AFileSavesTheMeasurement) {
  static_cast<void>(agree("auto", path_));
  EXPECT_EQ(measured_, kRanks);
  EXPECT_EQ(content(), "tcp/3/streams=0 ring=doubling,1:ring\n");
  EXPECT_THAT(agree("auto", path_), testing::Each("ring=doubling,1:ring"));
  EXPECT_EQ(measured_, 0);
  write("tcp/3/streams=0 nonsense\n");
  EXPECT_THAT(agree("auto", path_), testing::Each("ring=doubling,1:ring"));
  EXPECT_EQ(measured_, kRanks) << "a file that makes no sense is measured again";
}

}  // namespace
}  // namespace hvd::test
