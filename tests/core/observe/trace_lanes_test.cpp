#include <set>
#include <string>

#include <gtest/gtest.h>

#include "observe/trace_format.hpp"

namespace hvd::observe {
namespace {

TEST(TraceLanes, ATensorKeepsItsLane) {
  TraceLanes lanes(10);
  const auto a = lanes.lane_of("a");
  const auto b = lanes.lane_of("b");
  EXPECT_EQ(a.number, 1);
  EXPECT_EQ(b.number, 2);
  EXPECT_TRUE(a.fresh && b.fresh);
  const auto again = lanes.lane_of("a");
  EXPECT_EQ(again.number, 1);
  EXPECT_FALSE(again.fresh || again.shared);
}

TEST(TraceLanes, ANewNameTakesTheLaneUnusedForLongest) {
  TraceLanes lanes(2);
  (void)lanes.lane_of("a");
  (void)lanes.lane_of("b");
  (void)lanes.lane_of("a");
  const auto c = lanes.lane_of("c");
  EXPECT_EQ(c.number, 2);
  EXPECT_FALSE(c.fresh);
  EXPECT_TRUE(c.shared);
  EXPECT_EQ(lanes.lane_of("a").number, 1);
  const auto d = lanes.lane_of("d");
  EXPECT_EQ(d.number, 2);
  EXPECT_FALSE(d.shared);  // said already
}

TEST(TraceLanes, StayBoundedWhereNamesNeverRepeat) {
  TraceLanes lanes(16);
  std::set<int> numbers;
  for (int i = 0; i < 10'000; ++i) numbers.insert(lanes.lane_of("t" + std::to_string(i)).number);
  EXPECT_EQ(numbers.size(), 16U);
  EXPECT_EQ(*numbers.rbegin(), 16);
}

}  // namespace
}  // namespace hvd::observe
