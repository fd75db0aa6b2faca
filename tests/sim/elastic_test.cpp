// Many seeds of elastic jobs break no invariant, and each run can be repeated.
#include <algorithm>
#include <chrono>
#include <iostream>

#include <gtest/gtest.h>

#include "elastic/simulation.hpp"

namespace hvd::sim::elastic {
namespace {

TEST(ElasticSimulation, NoSeedBreaksAnInvariant) {
  const auto began = std::chrono::steady_clock::now();
  Totals totals;
  for (std::uint64_t seed = 1; seed <= HVD_SIM_SEEDS; ++seed) {
    const Outcome outcome = simulate(seed, 0, false);
    totals.add(outcome);
    ASSERT_EQ(outcome.violation, "")
        << "repeat it with: hvd_sim --elastic --first-seed " << seed << " --seeds 1 --verbose";
  }
  std::cout << totals.text(std::chrono::steady_clock::now() - began);
  EXPECT_EQ(totals.missing(), "");
}

TEST(ElasticSimulation, TheSameSeedIsTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    ASSERT_EQ(simulate(seed, 0, false).hash, simulate(seed, 0, false).hash) << seed;
  }
  EXPECT_NE(simulate(1, 0, false).hash, simulate(2, 0, false).hash);
}

}  // namespace
}  // namespace hvd::sim::elastic
