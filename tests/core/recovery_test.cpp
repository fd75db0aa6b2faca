#include <tuple>

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

/// Returns what a rank has of division `number` of `ranks` ranks, in which it has made `steps`.
Division part(std::int64_t number, std::int64_t rank, std::int64_t ranks, std::int64_t steps,
              bool pending = false) {
  return {number, rank, ranks, steps, pending ? 1 : 0};
}

/// Chooses where all ranks that have something are sound, after step 10 of division 4.
StateSource choose(const std::vector<Divisions>& divisions, std::int64_t commits = 0) {
  std::vector<Standing> standings(divisions.size(), sound(10, 10, commits));
  return choose_source(standings, divisions);
}

TEST(RecoveryTest, ALostShardComesFromTheNextRank) {
  const StateSource source = choose({{part(4, 0, 4, 9)}, {part(4, 1, 4, 9)}, {part(4, 3, 4, 9)}});
  EXPECT_FALSE(source.from_commit);
  EXPECT_EQ(source.division, 4);
  ASSERT_EQ(source.shards.size(), 4U);
  for (const auto& [shard, rank, is_mirror] : {std::tuple(0, 0, false), std::tuple(1, 1, false),
                                               std::tuple(2, 2, true), std::tuple(3, 2, false)}) {
    EXPECT_EQ(source.shards[static_cast<std::size_t>(shard)].rank, rank) << shard;
    EXPECT_EQ(source.shards[static_cast<std::size_t>(shard)].is_mirror, is_mirror) << shard;
  }
}

TEST(RecoveryTest, TheLastShardIsMirroredByRank0) {
  const StateSource source = choose({{}, {part(4, 0, 3, 9)}, {part(4, 1, 3, 9)}});
  EXPECT_EQ(source.division, 4);
  EXPECT_EQ(source.shards.back().rank, 1);
  EXPECT_TRUE(source.shards.back().is_mirror);
}

TEST(RecoveryTest, NeighboursThatAreLostTogetherTakeAShardAlong) {
  const std::vector<Divisions> two_of_four{{part(4, 0, 4, 9)}, {part(4, 1, 4, 9)}};
  const StateSource source = choose(two_of_four, 2);
  EXPECT_TRUE(source.from_commit);
  EXPECT_TRUE(source.shards_lost);
  EXPECT_EQ(source.division, 0);
  EXPECT_THROW((void)choose(two_of_four), Error);
  EXPECT_EQ(choose({{part(4, 0, 4, 9)}, {part(4, 2, 4, 9)}}).division, 4);
}

TEST(RecoveryTest, APendingStepIsMadeIfAnyRankHasMadeIt) {
  std::vector<Standing> standings{sound(9, 9), sound(10, 9), sound(9, 9)};
  const std::vector<Divisions> divisions{
      {part(4, 0, 4, 8, true)}, {part(4, 1, 4, 9)}, {part(4, 3, 4, 8, true)}};
  const StateSource source = choose_source(standings, divisions);
  EXPECT_EQ(source.division_steps, 9);
  EXPECT_EQ(source.division, 4);
  EXPECT_EQ(standings[0], standings[1]);
  EXPECT_EQ(standings[2], standings[1]);
}

TEST(RecoveryTest, APendingStepThatNoRankHasMadeIsNotMade) {
  std::vector<Standing> standings{sound(9, 9), sound(9, 9)};
  const StateSource source =
      choose_source(standings, {{part(4, 0, 3, 8, true)}, {part(4, 2, 3, 8)}});
  EXPECT_EQ(source.division, 4);
  EXPECT_EQ(source.division_steps, 8);
  EXPECT_EQ(standings[0].steps, 9);
}

TEST(RecoveryTest, ARankThatCannotMakeTheStepHasNoShardOfIt) {
  EXPECT_TRUE(choose({{part(4, 0, 3, 8)}, {part(4, 1, 3, 9)}}, 1).shards_lost);
}

TEST(RecoveryTest, TheDivisionBeforeIsThereUntilTheFirstStep) {
  const std::vector<Divisions> divisions{{part(4, 0, 3, 9), part(5, 0, 3, 0)}, {part(4, 2, 3, 9)}};
  EXPECT_EQ(choose(divisions).division, 4);
  EXPECT_EQ(choose(divisions).division_steps, 9);
  // In the newer one a step was made.
  EXPECT_TRUE(
      choose({{part(5, 0, 4, 1)}, {part(4, 2, 3, 9), part(5, 1, 4, 0, true)}}, 1).shards_lost);
}

TEST(RecoveryTest, TheNewestWholeDivisionIsPreferred) {
  EXPECT_EQ(
      choose({{part(4, 0, 3, 9), part(5, 0, 2, 0)}, {part(4, 2, 3, 9), part(5, 1, 2, 0)}}).division,
      5);
}

TEST(RecoveryTest, OptimizersThatHaveNotBegunLoseNothing) {
  const StateSource source = choose({{part(1, 0, 4, 0)}, {part(1, 1, 4, 0)}});
  EXPECT_FALSE(source.from_commit);
  EXPECT_EQ(source.division, 0);
}

TEST(RecoveryTest, WithoutMirrorsNothingChanges) {
  EXPECT_EQ(choose({{}, {}}).division, 0);
  EXPECT_FALSE(choose({{}, {}}).from_commit);
}

}  // namespace
}  // namespace hvd::detail
