// Tests when two ranks of a host count as being on the same CPU.
#include "shm/shared_cpu.hpp"

#include <gtest/gtest.h>

namespace hvd {
namespace {

using namespace std::chrono_literals;
using detail::SharedCpu;

/// Rank 3 as it waits for others.
class SharedCpuTest : public testing::Test {
 protected:
  /// Lets `other` wait on `theirs`, and then rank 3 for it on CPU 2.
  bool waits(int other, unsigned theirs, Clock::duration step = 10ms) {
    now_ += step;
    place_ = SharedCpu::next(place_, theirs);
    own_ = SharedCpu::next(own_, 2);
    return watch_.begins_to_wait(own_, other, place_, now_);
  }
  int told(int other, int times, Clock::duration step = 10ms) {
    int count = 0;
    for (int i = 0; i < times; ++i) count += waits(other, 2, step) ? 1 : 0;
    return count;
  }

  SharedCpu watch_{3};
  Clock::time_point now_{};
  SharedCpu::Place own_ = 0;
  SharedCpu::Place place_ = 0;
};

TEST_F(SharedCpuTest, IsToldOnceAfterASecondAndManyWaits) {
  EXPECT_EQ(told(4, 100), 0);
  EXPECT_EQ(told(4, 1), 1);
  EXPECT_EQ(told(4, 1000), 0);
}

TEST_F(SharedCpuTest, TakesASecond) { EXPECT_EQ(told(4, 9999, 100us), 0); }

TEST_F(SharedCpuTest, TakesManyWaits) { EXPECT_EQ(told(4, 100, 10s), 0); }

TEST_F(SharedCpuTest, AWaitOnAnotherCpuBeginsAnew) {
  EXPECT_EQ(told(4, 100), 0);
  EXPECT_FALSE(waits(4, 1));
  EXPECT_EQ(told(4, 100), 0);
  EXPECT_EQ(told(4, 1), 1);
}

TEST_F(SharedCpuTest, ARankThatDoesNotWaitItselfIsElsewhere) {
  static_cast<void>(waits(4, 2));
  for (int i = 0; i < 1000; ++i) {
    now_ += 10ms;
    own_ = SharedCpu::next(own_, 2);
    EXPECT_FALSE(watch_.begins_to_wait(own_, 4, place_, now_));
  }
}

TEST_F(SharedCpuTest, ARankThatHasNeverWaitedIsNowhere) {
  EXPECT_FALSE(watch_.begins_to_wait(SharedCpu::next(0, 0xffff), 4, 0, now_));
  for (int i = 0; i < 1000; ++i) {
    now_ += 10ms;
    own_ = SharedCpu::next(own_, 2);
    EXPECT_FALSE(watch_.begins_to_wait(own_, 4, 0, now_));
  }
}

TEST_F(SharedCpuTest, WaitsForOthersInBetweenDoNotMatter) {
  int count = 0;
  for (int i = 0; i < 101; ++i) {
    count += waits(4, 2) ? 1 : 0;
    static_cast<void>(waits(5, 1, 0ms));
  }
  EXPECT_EQ(count, 1);
}

TEST_F(SharedCpuTest, TheLowerRankSpeaks) { EXPECT_EQ(told(1, 1000), 0); }

}  // namespace
}  // namespace hvd
