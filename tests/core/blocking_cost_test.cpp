// Counts the cost of a blocking operation of a frozen schedule. benchmarks/ measures times.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include <hvd/hvd.hpp>

#include "call_counts.hpp"
#include "host/allocations.hpp"

namespace hvd {
namespace {

constexpr int kOperations = 512;

/// The counts of the calling thread.
struct Cost {
  std::uint64_t allocations = 0;
  std::uint64_t locks = 0;
  std::uint64_t clocks = 0;

  static Cost now() {
    const auto calls = test::call_counts();
    return {*test::allocations(), calls->locks, calls->clocks};
  }
};

struct Costs {
  /// The median, because sometimes a queue allocates a block, and a busy machine thaws the
  /// schedule.
  std::uint64_t allocations = 0;
  /// The least of all operations, which is one that did not wait, since a wait reads the clock.
  std::uint64_t locks = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t clocks = std::numeric_limits<std::uint64_t>::max();
};

Costs costs_of_allreduces(Context& context, const std::string& name, std::size_t count) {
  std::vector<float> data(count);
  const AllreduceOptions options{.name = name, .op = ReduceOp::sum, .context = &context};
  const auto reduce = [&] { allreduce(std::span(data), options); };
  for (int i = 0; i < 64; ++i) reduce();
  EXPECT_GE(context.stats().freezes, 1U);
  Costs costs;
  std::vector<std::uint64_t> allocations;
  for (int i = 0; i < kOperations; ++i) {
    const Cost before = Cost::now();
    reduce();
    const Cost after = Cost::now();
    allocations.push_back(after.allocations - before.allocations);
    costs.locks = std::min(costs.locks, after.locks - before.locks);
    costs.clocks = std::min(costs.clocks, after.clocks - before.clocks);
  }
  const auto middle = allocations.begin() + kOperations / 2;
  std::nth_element(allocations.begin(), middle, allocations.end());
  costs.allocations = *middle;
  return costs;
}

/// Returns the least of all ranks, since the last rank to come does not wait.
Costs least_costs(int size, const std::string& name, std::size_t count) {
  std::vector<Costs> costs(static_cast<std::size_t>(size));
  const std::shared_ptr<Store> store = make_hash_store();
  test::expect_threads(size, [&](int rank) {
    const auto context = make_context(test::thread_config(rank, size), store);
    costs[static_cast<std::size_t>(rank)] = costs_of_allreduces(*context, name, count);
    context->shutdown();
  });
  Costs least;
  for (const Costs& one : costs) {
    least.allocations = std::max(least.allocations, one.allocations);
    least.locks = std::min(least.locks, one.locks);
    least.clocks = std::min(least.clocks, one.clocks);
  }
  return least;
}

class BlockingCost : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!test::allocations() || !test::call_counts()) {
      GTEST_SKIP() << "needs a C library without a sanitizer";
    }
  }

  /// The shape of the request, and the operation with its handle.
  static constexpr std::uint64_t kAllocations = 2;
  static constexpr std::uint64_t kLocks = 7;
  static constexpr std::uint64_t kClocks = 3;  // submitted, committed, ended

  static void expect_little(const Costs& costs, std::uint64_t allocations) {
    EXPECT_LE(costs.allocations, allocations);
    EXPECT_LE(costs.locks, kLocks);
    EXPECT_LE(costs.clocks, kClocks);
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, BlockingCost, testing::Values(1, 2, 4));

TEST_P(BlockingCost, OfAFewBytes) {
  expect_little(least_costs(GetParam(), "loss", 1), kAllocations);
}

TEST_P(BlockingCost, OfPrivateMemoryThatOneTurnMoves) {
  expect_little(least_costs(GetParam(), "loss", 4'000), kAllocations);
}

/// The name is too long for the string's internal buffer.
TEST_P(BlockingCost, OfALongName) {
  expect_little(least_costs(GetParam(), "layer4.1.batch_norm.running_mean", 1), kAllocations + 2);
}

}  // namespace
}  // namespace hvd
