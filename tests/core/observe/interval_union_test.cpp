#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "observe/step_meter.hpp"

namespace hvd::observe {
namespace {

Clock::time_point at(int nanosecond) {
  return Clock::time_point(std::chrono::nanoseconds(nanosecond));
}

TEST(IntervalUnion, CountsOverlapsOnce) {
  IntervalUnion all;
  all.add(at(0), at(10));
  EXPECT_EQ(all.total().count(), 10);
  all.add(at(5), at(12));  // overlaps the end
  EXPECT_EQ(all.total().count(), 12);
  all.add(at(20), at(30));
  EXPECT_EQ(all.total().count(), 22);
  all.add(at(11), at(31));  // joins both
  EXPECT_EQ(all.total().count(), 31);
  all.add(at(3), at(7));  // inside
  all.add(at(9), at(9));
  all.add(at(50), at(40));
  EXPECT_EQ(all.total().count(), 31);
}

TEST(IntervalUnion, AgreesWithCountingOnRandomIntervals) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    IntervalUnion all;
    std::vector<bool> covered(2000, false);
    int now = 0;
    for (int i = 0; i < 60; ++i) {  // no more than are remembered
      now += static_cast<int>(random() % 25);
      const int end = std::max(0, now - static_cast<int>(random() % 10));
      const int begin = std::max(0, end - static_cast<int>(random() % 60));
      all.add(at(begin), at(end));
      for (int t = begin; t < end; ++t) covered[static_cast<std::size_t>(t)] = true;
      const auto expected = std::count(covered.begin(), covered.end(), true);
      ASSERT_EQ(all.total().count(), expected) << "round " << round << ", interval " << i;
    }
  }
}

TEST(IntervalUnion, StaysExactForSeparateIntervalsWithoutEnd) {
  IntervalUnion all;
  for (int i = 0; i < 10'000; ++i) all.add(at(10 * i), at(10 * i + 3));
  EXPECT_EQ(all.total().count(), 30'000);
}

}  // namespace
}  // namespace hvd::observe
