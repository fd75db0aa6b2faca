#include <gtest/gtest.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/recovery.hpp>

namespace hvd::detail {
namespace {

Standing sound(std::int64_t steps, std::int64_t iterations, std::int64_t commits = 0) {
  return {Standing::whole, 1, steps, iterations, commits};
}
Standing damaged(std::int64_t commits = 0) { return {Standing::damaged, 1, 9, 9, commits}; }
Standing in_a_step(std::int64_t commits = 0) { return {Standing::whole, 0, 9, 9, commits}; }

TEST(RecoveryTest, ANewJobStartsFromRank0) {
  const StateSource source = choose_source({{}, {}, {}});
  EXPECT_EQ(source.rank, 0);
  EXPECT_FALSE(source.from_commit);
}

TEST(RecoveryTest, TheStepThatOneRankHasCompletedCounts) {
  EXPECT_EQ(choose_source({sound(4, 4), sound(5, 4), sound(4, 4)}).rank, 1);
}

TEST(RecoveryTest, OfEqualStepsTheEndedIterationCounts) {
  EXPECT_EQ(choose_source({sound(5, 4), sound(5, 5), sound(5, 5)}).rank, 1);
}

TEST(RecoveryTest, ANewcomerIsNoSource) { EXPECT_EQ(choose_source({{}, sound(0, 0)}).rank, 1); }

TEST(RecoveryTest, WhatIsDamagedOrWithinAStepIsNoSource) {
  EXPECT_EQ(choose_source({damaged(), in_a_step(), sound(3, 3)}).rank, 2);
}

TEST(RecoveryTest, ALiveStateIsPreferredToACommit) {
  const StateSource source = choose_source({in_a_step(7), sound(1, 1, 2)});
  EXPECT_EQ(source.rank, 1);
  EXPECT_FALSE(source.from_commit);
}

TEST(RecoveryTest, WithoutALiveStateTheLastCommitCounts) {
  const StateSource source = choose_source({damaged(1), in_a_step(2), damaged(2)});
  EXPECT_EQ(source.rank, 1);
  EXPECT_TRUE(source.from_commit);
}

TEST(RecoveryTest, WithoutAStateThereIsAnError) {
  EXPECT_THROW((void)choose_source({{}, damaged()}), Error);
  EXPECT_THROW((void)choose_source({in_a_step()}), Error);
}

}  // namespace
}  // namespace hvd::detail
