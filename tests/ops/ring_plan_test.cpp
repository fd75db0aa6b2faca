// Tests the ring plan as data, by running it on sets of ranks instead of memory.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ring/plan.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test

class RingPlanTest : public testing::TestWithParam<int> {
 protected:
  /// held[r][k] is the order of the ranks whose contributions rank r's copy of chunk k contains.
  using Held = std::vector<std::vector<std::vector<int>>>;

  Held reduce_scattered() const {
    const int n = GetParam();
    Held held(static_cast<std::size_t>(n));
    for (int r = 0; r < n; ++r)
      held[static_cast<std::size_t>(r)].assign(static_cast<std::size_t>(n), {r});
    for (std::size_t step = 0; step + 1 < static_cast<std::size_t>(n); ++step) {
      const Held before = held;  // all ranks send at the same time
      for (int r = 0; r < n; ++r) {
        const RingPlan plan = plan_ring(r, n);
        const auto chunk = static_cast<std::size_t>(plan.reduce_scatter[step].receive);
        const RingPlan sender = plan_ring(plan.previous, n);
        EXPECT_EQ(sender.reduce_scatter[step].send, plan.reduce_scatter[step].receive);
        EXPECT_EQ(sender.next, r);
        std::vector<int> sum = before[static_cast<std::size_t>(plan.previous)][chunk];
        sum.push_back(r);
        held[static_cast<std::size_t>(r)][chunk] = sum;
      }
    }
    return held;
  }
};

TEST_P(RingPlanTest, AddsEveryRankOnceInTheDocumentedOrder) {
  const int n = GetParam();
  const Held held = reduce_scattered();
  for (int k = 0; k < n; ++k) {
    std::vector<int> order;
    for (int hop = 1; hop <= n; ++hop) order.push_back((k + hop) % n);
    EXPECT_EQ(held[static_cast<std::size_t>(k)][static_cast<std::size_t>(k)], order);
  }
}

TEST_P(RingPlanTest, GathersEveryChunkEverywhere) {
  const int n = GetParam();
  std::vector<std::vector<bool>> complete(static_cast<std::size_t>(n));
  for (int r = 0; r < n; ++r) {
    complete[static_cast<std::size_t>(r)].assign(static_cast<std::size_t>(n), false);
    complete[static_cast<std::size_t>(r)][static_cast<std::size_t>(r)] = true;
  }
  for (std::size_t step = 0; step + 1 < static_cast<std::size_t>(n); ++step) {
    const auto before = complete;
    for (int r = 0; r < n; ++r) {
      const RingPlan plan = plan_ring(r, n);
      const auto chunk = static_cast<std::size_t>(plan.all_gather[step].receive);
      EXPECT_TRUE(before[static_cast<std::size_t>(plan.previous)][chunk]);
      EXPECT_FALSE(before[static_cast<std::size_t>(r)][chunk]) << "received twice";
      EXPECT_NE(plan.all_gather[step].send, plan.all_gather[step].receive);
      complete[static_cast<std::size_t>(r)][chunk] = true;
    }
  }
  for (const auto& chunks : complete) EXPECT_EQ(chunks, std::vector<bool>(chunks.size(), true));
}

TEST_P(RingPlanTest, TakesTwiceTheRanksLessOneSteps) {
  const RingPlan plan = plan_ring(0, GetParam());
  EXPECT_EQ(plan.reduce_scatter.size(), static_cast<std::size_t>(GetParam()) - 1);
  EXPECT_EQ(plan.all_gather.size(), static_cast<std::size_t>(GetParam()) - 1);
}

TEST(RingOrderTest, RanksOfAHostFollowEachOther) {
  const RingOrder order = order_by_host(std::vector{0, 1, 1, 0, 1});
  EXPECT_EQ(order.ranks, (std::vector{0, 3, 1, 2, 4}));
  EXPECT_EQ(order.positions, (std::vector{0, 2, 3, 1, 4}));
  EXPECT_FALSE(order.is_by_rank());
}

TEST(RingOrderTest, HostsKeepTheirNumbersInASubset) {
  EXPECT_EQ(order_by_host(std::vector{7, 3, 7}).ranks, (std::vector{1, 0, 2}));
}

bool same(const RingPlan& a, const RingPlan& b) {
  const auto equal = [](const RingStep& x, const RingStep& y) {
    return x.send == y.send && x.receive == y.receive;
  };
  return a.next == b.next && a.previous == b.previous &&
         std::equal(a.reduce_scatter.begin(), a.reduce_scatter.end(), b.reduce_scatter.begin(),
                    b.reduce_scatter.end(), equal) &&
         std::equal(a.all_gather.begin(), a.all_gather.end(), b.all_gather.begin(),
                    b.all_gather.end(), equal);
}

TEST(RingOrderTest, WhereHostsFollowEachOtherItIsTheOrderOfRanks) {
  const RingOrder order = order_by_host(std::vector{0, 0, 1, 2, 2, 2});
  EXPECT_TRUE(order.is_by_rank());
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_TRUE(same(plan_ring(order, rank), plan_ring(rank, 6))) << rank;
  }
}

TEST(RingOrderTest, ARankOwnsTheChunkOfItsNumber) {
  const RingOrder order = order_by_host(std::vector{0, 1, 0, 1});  // around: 0 2 1 3
  const RingPlan plan = plan_ring(order, 2);
  EXPECT_EQ(plan.previous, 0);
  EXPECT_EQ(plan.next, 1);
  EXPECT_EQ(plan.reduce_scatter.back().receive, 2);
  EXPECT_EQ(plan.all_gather.front().send, 2);
  EXPECT_EQ(plan.all_gather.front().receive, 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingPlanTest, testing::Values(1, 2, 3, 4, 5, 8, 16),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace hvd::test
