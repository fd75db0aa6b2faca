// Many seeds of the simulator break no invariant, and each run can be repeated.
#include "simulation.hpp"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>

#include <gtest/gtest.h>

#include "totals.hpp"

namespace hvd::sim {
namespace {

/// The tests of one number of ranks or shape of the tree run fewer seeds than the test of all.
constexpr std::uint64_t kSeedsPerShape = std::max(10, HVD_SIM_SEEDS / 100);

TEST(Simulation, NoSeedBreaksAnInvariant) {
  const auto began = std::chrono::steady_clock::now();
  Totals totals;
  for (std::uint64_t seed = 1; seed <= HVD_SIM_SEEDS; ++seed) {
    const Outcome outcome = simulate(seed, {}, false);
    totals.add(outcome);
    ASSERT_EQ(outcome.violation, "")
        << "repeat it with: hvd_sim --first-seed " << seed << " --seeds 1 --verbose";
  }
  std::cout << totals.text(std::chrono::steady_clock::now() - began);
  EXPECT_EQ(totals.missing(), "");
}

class WorldOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, WorldOf, testing::Range(1, 17));

TEST_P(WorldOf, AnySizeHolds) {
  std::uint64_t freezes = 0;
  for (std::uint64_t seed = 1; seed <= kSeedsPerShape; ++seed) {
    const Outcome outcome = simulate(seed, {GetParam(), 0}, false);
    ASSERT_EQ(outcome.violation, "") << "repeat it with: hvd_sim --first-seed " << seed
                                     << " --seeds 1 --ranks " << GetParam() << " --verbose";
    freezes += outcome.freezes;
  }
  EXPECT_GT(freezes, 0U);
}

/// The number of ranks, and of children that a rank has at most.
class TreeOf : public testing::TestWithParam<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Shapes, TreeOf,
                         testing::Values(std::pair(4, 2), std::pair(5, 2), std::pair(5, 3),
                                         std::pair(8, 2), std::pair(8, 4), std::pair(13, 4),
                                         std::pair(16, 4), std::pair(16, 8), std::pair(14, 2),
                                         std::pair(30, 3)));

TEST_P(TreeOf, AnyShapeHolds) {
  const auto [ranks, fanout] = GetParam();
  std::uint64_t merged = 0;
  // Few messages of a small tree meet in a relay, so it takes more seeds until two are combined.
  for (std::uint64_t seed = 1; seed <= kSeedsPerShape || (merged == 0 && seed <= 1000); ++seed) {
    const Outcome outcome = simulate(seed, {ranks, fanout}, false);
    ASSERT_EQ(outcome.violation, "")
        << "repeat it with: hvd_sim --first-seed " << seed << " --seeds 1 --ranks " << ranks
        << " --fanout " << fanout << " --verbose";
    merged += outcome.merged_messages;
  }
  EXPECT_GT(merged, 0U);
}

TEST(Simulation, TheSameSeedIsTheSameRun) {
  for (std::uint64_t seed = 1; seed <= kSeedsPerShape; ++seed) {
    const Outcome first = simulate(seed, {}, false);
    const Outcome second = simulate(seed, {}, false);
    ASSERT_EQ(first.hash, second.hash) << seed;
    ASSERT_EQ(first.events, second.events) << seed;
  }
}

TEST(Simulation, AnotherSeedIsAnotherRun) {
  EXPECT_NE(simulate(1, {}, false).hash, simulate(2, {}, false).hash);
}

}  // namespace
}  // namespace hvd::sim
