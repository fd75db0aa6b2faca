// Compares every operation, over MPI in every way, with the serial reference; runs under mpirun.
#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include <gtest/gtest.h>

#include "mpi_ways.hpp"
#include "support/backend_checks.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

constexpr Device kCpu{};

class MpiBackendTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    backend_ = make_backend(GetParam());
    rank_ = world_rank();
    size_ = world_size();
  }

  /// Only the mean of booleans is unsupported, and only with the ring alone.
  [[nodiscard]] bool supported(DType dtype, ReduceOp op) const {
    const bool yes = backend_->supports(OpKind::allreduce, kCpu, dtype, op);
    const bool mean_of_booleans = dtype == DType::boolean && op == ReduceOp::average;
    EXPECT_TRUE(yes ||
                (mean_of_booleans && GetParam() != Way::collective && GetParam() != Way::chosen));
    return yes;
  }

  BackendChecks checks() { return {*backend_, memory_, kCpu, rank_, size_}; }

  HostMemory memory_;
  std::unique_ptr<Backend> backend_;
  int rank_ = 0;
  int size_ = 1;
};

INSTANTIATE_TEST_SUITE_P(Ways, MpiBackendTest,
                         testing::Values(Way::collective, Way::ring, Way::chosen,
                                         Way::hierarchical),
                         [](const auto& way) { return to_string(way.param); });

TEST_P(MpiBackendTest, ReducesEveryTypeWithEveryOp) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::string(to_string(op)));
      if (!supported(dtype, op)) continue;
      EXPECT_EQ(checks().allreduce(dtype, op, {997}, false), 0) << "one tensor";
      EXPECT_EQ(checks().allreduce(dtype, op, {1}, true), 0) << "one element in place";
      EXPECT_EQ(checks().allreduce(dtype, op, {5, 0, 1, 300, 2}, true), 0) << "fused in place";
      EXPECT_EQ(checks().allreduce(dtype, op, {3, 4099}, false), 0) << "fused";
    }
  }
}

TEST_P(MpiBackendTest, ReducesLargeTensors) {
  // Larger than every size at which Open MPI changes its algorithm.
  EXPECT_EQ(checks().allreduce(DType::f32, ReduceOp::sum, {1 << 20}, false), 0);
  EXPECT_EQ(checks().allreduce(DType::bf16, ReduceOp::sum, {300'001, 200'003}, true), 0);
}

TEST_P(MpiBackendTest, RanksMayDifferInWhereTheyWantTheResult) {
  // From 64 KiB on, Open MPI's algorithms for four ranks differ between in place and out of place.
  constexpr std::int64_t kLarge = 1 << 16;
  EXPECT_EQ(checks().allreduce(DType::f32, ReduceOp::sum, {kLarge}, rank_ % 2 == 1), 0);
  EXPECT_EQ(checks().allreduce(DType::f32, ReduceOp::average, {kLarge}, rank_ == 0), 0);
  EXPECT_EQ(checks().allreduce_without_last(DType::f32, ReduceOp::sum, {kLarge}), 0);
}

TEST_P(MpiBackendTest, ScalesBeforeAndAfter) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      if (!supported(dtype, op)) continue;
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::string(to_string(op)));
      const Scales scales{.prescale = 0.5, .postscale = 2.5};
      EXPECT_EQ(checks().allreduce(dtype, op, {61}, false, scales), 0) << "one tensor";
      EXPECT_EQ(checks().allreduce(dtype, op, {61}, true, scales), 0) << "one tensor in place";
      EXPECT_EQ(checks().allreduce(dtype, op, {7, 0, 61}, false, scales), 0) << "fused";
    }
  }
}

TEST_P(MpiBackendTest, AnIntegerAverageIsExactWhereItsTypeCannotHoldTheSum) {
  std::vector<std::uint8_t> data(100, 250);
  auto* const bytes = reinterpret_cast<std::byte*>(data.data());
  const std::vector<TensorSlice> slices{{bytes, bytes, 100}};
  backend_->allreduce({slices, kCpu, DType::u8, ReduceOp::average}, soon());
  EXPECT_EQ(data, std::vector<std::uint8_t>(100, 250));
}

TEST_P(MpiBackendTest, LargeUnsignedValuesAreNotNegative) {
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    std::vector<std::uint8_t> data(33, rank_ == 0 ? 100 : 200);
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    const std::vector<TensorSlice> slices{{bytes, bytes, 33}};
    backend_->allreduce({slices, kCpu, DType::u8, op}, soon());
    const bool largest = op == ReduceOp::max && size_ > 1;
    EXPECT_EQ(data, std::vector<std::uint8_t>(33, largest ? 200 : 100)) << to_string(op);
  }
}

TEST_P(MpiBackendTest, ANanWinsAMinOnEveryRank) {
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    std::vector<float> data(33, static_cast<float>(rank_));
    if (rank_ == size_ - 1) data[7] = std::numeric_limits<float>::quiet_NaN();
    auto* const bytes = reinterpret_cast<std::byte*>(data.data());
    const std::vector<TensorSlice> slices{{bytes, bytes, 33}};
    backend_->allreduce({slices, kCpu, DType::f32, op}, soon());
    EXPECT_TRUE(std::isnan(data[7]));
    EXPECT_EQ(data[8], op == ReduceOp::min ? 0.0F : static_cast<float>(size_ - 1));
  }
}

TEST_P(MpiBackendTest, ResultsAreBitIdenticalOnAllRanks) {
  // The sums depend on the order.
  std::vector<float> data(10'007);
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = 1.0F / static_cast<float>(1 + (i * 31 + static_cast<std::size_t>(rank_) * 17) % 97);
  }
  auto* const bytes = reinterpret_cast<std::byte*>(data.data());
  const std::vector<TensorSlice> slices{{bytes, bytes, static_cast<std::int64_t>(data.size())}};
  backend_->allreduce({slices, kCpu, DType::f32, ReduceOp::sum}, soon());

  std::vector<std::uint32_t> mine;
  for (const float value : data) mine.push_back(std::bit_cast<std::uint32_t>(value));
  std::vector<std::uint32_t> roots = mine;
  ASSERT_EQ(
      MPI_Bcast(roots.data(), static_cast<int>(roots.size()), MPI_UINT32_T, 0, MPI_COMM_WORLD),
      MPI_SUCCESS);
  EXPECT_EQ(mine, roots);
}

TEST_P(MpiBackendTest, BroadcastsFromEveryRoot) {
  for (int root = 0; root < size_; ++root) {
    for (const DType dtype : kAllDTypes) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " from " + std::to_string(root));
      EXPECT_EQ(checks().broadcast(dtype, root, {257}), 0);
      EXPECT_EQ(checks().broadcast(dtype, root, {0, 1, 4097, 3}), 0);
    }
  }
}

TEST_P(MpiBackendTest, GathersDifferentCounts) {
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(to_string(dtype));
    EXPECT_EQ(checks().allgather(dtype, {3}), 0);
    EXPECT_EQ(checks().allgather(dtype, {-1}), 0);
    EXPECT_EQ(checks().allgather(dtype, {5, 0, -1, 1000}), 0);
  }
}

TEST_P(MpiBackendTest, ReducesAndScattersDifferentCounts) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      if (!supported(dtype, op)) continue;
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::string(to_string(op)));
      EXPECT_EQ(checks().reducescatter(dtype, op, {5}), 0);
      EXPECT_EQ(checks().reducescatter(dtype, op, {-1}), 0) << "nothing for some";
      EXPECT_EQ(checks().reducescatter(dtype, op, {4, -1, 0, 900}), 0) << "fused";
      EXPECT_EQ(checks().reducescatter(dtype, op, {61}, {0.5, 2.5}), 0) << "scaled";
    }
  }
  EXPECT_EQ(checks().reducescatter(DType::f32, ReduceOp::sum, {300'000}), 0);
}

TEST_P(MpiBackendTest, SendsPartsToAll) {
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(to_string(dtype));
    EXPECT_EQ(checks().alltoall(dtype, 0), 0);
    EXPECT_EQ(checks().alltoall(dtype, -1), 0) << "nothing for some";
    EXPECT_EQ(checks().alltoall(dtype, 30'011), 0) << "beyond the eager limit";
  }
}

TEST_P(MpiBackendTest, WorksWithRanksThatHaveNothing) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      if (!supported(dtype, op)) continue;
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::string(to_string(op)));
      EXPECT_EQ(checks().allreduce_without_last(dtype, op, {5}), 0);
      EXPECT_EQ(checks().allreduce_without_last(dtype, op, {5, 1009, 2}), 0) << "fused";
      if (!is_floating(dtype)) continue;
      EXPECT_EQ(checks().allreduce_without_last(dtype, op, {5, 7}, {-0.5, 2.0}), 0) << "scaled";
    }
  }
}

TEST_P(MpiBackendTest, SubsetsOverlapAndWorkInTurn) {
  std::vector<std::vector<int>> groups{{0}};
  if (size_ > 1) groups.push_back({0, 1});
  if (size_ > 2) groups.insert(groups.end(), {{1, 2}, {0, 2}, {0, 1, 2}});
  EXPECT_EQ(checks().subsets(groups), 0);
}

TEST_P(MpiBackendTest, ASubsetHasSubsets) {
  const auto outer = backend_->subset(std::vector<int>{rank_}, soon());
  const auto inner = outer->subset(std::vector<int>{0}, soon());
  inner->barrier(soon());
  EXPECT_THROW(static_cast<void>(outer->subset(std::vector<int>{1}, soon())), Error);
}

TEST_P(MpiBackendTest, CutsWhatMpiCannotCount) {
  backend_.reset();
  backend_ = make_backend(GetParam(), {.collective = {.max_piece = 24}, .ring = {.segment = 24}});
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::i64}) {
    SCOPED_TRACE(to_string(dtype));
    EXPECT_EQ(checks().allreduce(dtype, ReduceOp::sum, {101}, false), 0);
    EXPECT_EQ(checks().allreduce(dtype, ReduceOp::average, {101, 7}, true), 0);
    EXPECT_EQ(checks().broadcast(dtype, size_ - 1, {101, 3}), 0);
    EXPECT_EQ(checks().allgather(dtype, {50, -1}), 0);
    EXPECT_EQ(checks().reducescatter(dtype, ReduceOp::sum, {50, -1}), 0);
    EXPECT_EQ(checks().reducescatter(dtype, ReduceOp::average, {50}), 0);
    EXPECT_EQ(checks().alltoall(dtype, 50), 0);
  }
}

TEST_P(MpiBackendTest, EmptyCallsAndBarriers) {
  EXPECT_EQ(checks().allreduce(DType::f32, ReduceOp::sum, {0, 0}, false), 0);
  EXPECT_EQ(checks().broadcast(DType::f32, 0, {0}), 0);
  for (int i = 0; i < 100; ++i) backend_->barrier(soon());
}

TEST_P(MpiBackendTest, CanBeMadeAgain) {
  for (int i = 0; i < 5; ++i) {
    backend_.reset();
    backend_ = make_backend(GetParam());
    EXPECT_EQ(checks().allreduce(DType::f32, ReduceOp::sum, {10}, true), 0);
  }
}

TEST_P(MpiBackendTest, OnlyOneAtATimeWhenMpiIsSerialized) {
  int level = 0;
  MPI_Query_thread(&level);
  if (level >= MPI_THREAD_MULTIPLE) GTEST_SKIP() << "needs an MPI without MPI_THREAD_MULTIPLE";
  EXPECT_THROW(detail::MpiUse(), Error);
}

TEST_P(MpiBackendTest, LeavesDevicesToOthers) {
  const Device gpu{Device::Kind::cuda, 0};
  EXPECT_FALSE(backend_->supports(OpKind::allreduce, gpu, DType::f32, ReduceOp::sum));
}

}  // namespace
}  // namespace hvd::test
