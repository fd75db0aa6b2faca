#include "engine/step_tuner.hpp"

#include <gtest/gtest.h>

#include <hvd/core/error.hpp>

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test
using std::chrono::milliseconds;

FrozenSchedule plan_of(std::int64_t elements) {
  FrozenSchedule plan;
  PlannedBatch& batch = plan.batches.emplace_back();
  Request& request = batch.requests.emplace_back();
  request.name = "g";
  request.shape = {elements};
  return plan;
}

constexpr BucketSizes kStart = usual_sizes(std::size_t{16} << 20);

class StepTunerTest : public testing::Test {
 protected:
  /// Runs `cycles` cycles of two collectives, each of `cycle_time`. Returns whether a trial has
  /// ended.
  bool run(std::uint32_t epoch, int cycles) {
    bool over = false;
    for (int i = 0; i < cycles; ++i, ++cycle_) {
      for (int turn = 0; turn < 2; ++turn) {
        over = tuner_.turn(epoch, cycle_, now_) || over;
        now_ += cycle_time_ / 2;
      }
    }
    return over;
  }

  StepTuner tuner_{{kStart, 4, ""}};
  Clock::time_point now_;
  milliseconds cycle_time_{10};
  std::uint64_t cycle_ = 0;
};

TEST_F(StepTunerTest, ATrialIsOverAfterItsCyclesAndThoseThatDoNotCount) {
  tuner_.frozen(plan_of(1 << 20), 1);
  EXPECT_FALSE(run(1, 6));  // 5 intervals, of which 2 do not count
  EXPECT_TRUE(run(1, 2));
  EXPECT_FALSE(run(1, 10)) << "nothing new until `next`";
}

TEST_F(StepTunerTest, CyclesOfAnotherFreezeAddUp) {
  tuner_.frozen(plan_of(1 << 20), 1);
  EXPECT_FALSE(run(1, 6));  // 3 count
  tuner_.frozen(plan_of(1 << 20), 3);
  EXPECT_FALSE(run(3, 3));
  EXPECT_TRUE(run(3, 1));
}

TEST_F(StepTunerTest, SchedulesThatMoveLessAreNotMeasured) {
  tuner_.frozen(plan_of(1 << 20), 1);
  EXPECT_FALSE(run(1, 4));
  tuner_.frozen(plan_of(1 << 10), 3);
  EXPECT_FALSE(run(3, 100));
  tuner_.frozen(plan_of(1 << 20), 5);
  EXPECT_TRUE(run(5, 10));
}

TEST_F(StepTunerTest, AScheduleThatMovesMoreStartsAnew) {
  tuner_.frozen(plan_of(1 << 10), 1);
  EXPECT_FALSE(run(1, 6));
  tuner_.frozen(plan_of(1 << 20), 3);
  EXPECT_FALSE(run(3, 6));
  EXPECT_TRUE(run(3, 1));
}

TEST_F(StepTunerTest, NothingIsMeasuredBetweenOtherSizesAndTheFreezeWithThem) {
  tuner_.frozen(plan_of(1 << 20), 1);
  std::uint32_t epoch = 1;
  std::optional<BucketSizes> sizes;
  for (int trials = 0; !sizes && trials < 3; ++trials) {
    ASSERT_TRUE(run(epoch, 20));
    sizes = tuner_.next();
  }
  ASSERT_TRUE(sizes);
  EXPECT_NE(*sizes, kStart);
  EXPECT_FALSE(run(epoch, 100)) << "the old sizes still hold";
  EXPECT_FALSE(tuner_.next());
  epoch += 2;
  tuner_.frozen(plan_of(1 << 20), epoch);
  EXPECT_TRUE(run(epoch, 20));
}

TEST_F(StepTunerTest, EndsWithTheSizesOfTheShortestCycles) {
  std::uint32_t epoch = 1;
  BucketSizes sizes = kStart;
  tuner_.frozen(plan_of(100 << 20), epoch);
  while (!tuner_.finished()) {
    cycle_time_ = milliseconds(sizes.threshold == std::size_t{4} << 20 ? 10 : 20);
    ASSERT_TRUE(run(epoch, 20));
    if (const auto next = tuner_.next()) {
      sizes = *next;
      epoch += 2;
      tuner_.frozen(plan_of(100 << 20), epoch);
    }
  }
  EXPECT_EQ(sizes.threshold, std::size_t{4} << 20);
  EXPECT_EQ(tuner_.summary().find("autotune: threshold 4096 KiB, edge 1024 KiB is 50.0 % faster"),
            0U)
      << tuner_.summary();
  EXPECT_FALSE(run(epoch, 100));
}

TEST(StepTuner, ALogThatCannotBeWrittenIsToldAtOnce) {
  try {
    const StepTuner tuner({kStart, 4, "/nowhere/at/all.csv"});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::resource);
    EXPECT_NE(std::string(error.what()).find("/nowhere/at/all.csv"), std::string::npos);
  }
}

}  // namespace
}  // namespace hvd
