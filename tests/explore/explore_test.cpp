// A slice of every configuration breaks no invariant, and an exploration can be resumed.
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "explorer.hpp"

namespace hvd::explore {
namespace {

constexpr int kWalks = 16;

std::string describe(const Scenario& scenario, const Counterexample& found) {
  return chart_of(scenario, shortened(scenario, found));
}

class Configuration : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Configuration, testing::ValuesIn(configurations()),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           for (char& c : name) c = c == '+' ? '_' : c;
                           return name;
                         });

TEST_P(Configuration, NoStateOfASliceBreaksAnInvariant) {
  for (const int ranks : {2, 3}) {
    Explorer explorer(*make_scenario(GetParam(), ranks), kWalks);
    const auto found = explorer.run(HVD_EXPLORE_STATES);
    ASSERT_FALSE(found) << describe(explorer.scenario(), *found);
    EXPECT_GT(explorer.counts().ends, 0U);
  }
}

TEST(Explorer, AnInterruptedSearchSeesTheSameStates) {
  const std::string file = testing::TempDir() + "hvd-exploration-" + std::to_string(::getpid());
  const Scenario scenario = *make_scenario("process_set", 2);
  Explorer whole(scenario, kWalks);
  EXPECT_FALSE(whole.run(100'000));
  EXPECT_TRUE(whole.complete());
  Explorer first(scenario, kWalks);
  EXPECT_FALSE(first.load(file));
  EXPECT_FALSE(first.run(5'000));
  EXPECT_FALSE(first.complete());
  first.save(file);
  Explorer second(scenario, kWalks);
  EXPECT_TRUE(second.load(file));
  std::remove(file.c_str());
  EXPECT_FALSE(second.run(100'000));
  EXPECT_TRUE(second.complete());
  EXPECT_EQ(second.visited().size(), whole.visited().size());
  EXPECT_EQ(second.visited().sum(), whole.visited().sum());
  EXPECT_EQ(second.counts().transitions, whole.counts().transitions);
}

TEST(Explorer, RefusesTheFileOfAnotherBuild) {
  const std::string file = testing::TempDir() + "hvd-exploration-of-" + std::to_string(::getpid());
  Explorer explorer(*make_scenario("freeze", 2), 1);
  explorer.save(file);
  EXPECT_TRUE(explorer.load(file));
  {
    std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
    bytes.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    const int byte = bytes.peek();  // of the program's digest
    bytes.seekp(bytes.tellg());
    bytes.put(static_cast<char>(byte ^ 1));
  }
  try {
    explorer.load(file);
    ADD_FAILURE() << "it has been loaded";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("another build"), std::string::npos) << error.what();
  }
  std::remove(file.c_str());
}

TEST(Explorer, TheOrderOfTheSearchDoesNotChangeTheSet) {
  const Scenario scenario = *make_scenario("process_set", 2);
  Explorer one(scenario, 1);
  Explorer many(scenario, 7);
  EXPECT_FALSE(one.run(100'000));
  EXPECT_FALSE(many.run(100'000));
  EXPECT_TRUE(one.complete() && many.complete());
  EXPECT_EQ(one.visited().size(), many.visited().size());
  EXPECT_EQ(one.visited().sum(), many.visited().sum());
  EXPECT_EQ(one.counts().ends, many.counts().ends);
}

TEST(Explorer, ACounterexampleIsShortAndDrawn) {
  Scenario scenario = *make_scenario("freeze", 2);
  for (Meaning& meaning : scenario.meanings) meaning.error = Errc::mismatch;  // expects the wrong
  Explorer explorer(scenario, kWalks);
  const auto found = explorer.run(100'000);
  ASSERT_TRUE(found);
  const Counterexample shortest = shortened(scenario, *found);
  EXPECT_LT(shortest.path.size(), 12U);
  const std::string chart = chart_of(scenario, shortest);
  EXPECT_NE(chart.find("Submitted"), std::string::npos) << chart;
  EXPECT_NE(chart.find("breaks: the right outcome"), std::string::npos) << chart;
}

}  // namespace
}  // namespace hvd::explore
