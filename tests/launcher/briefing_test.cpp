#include "briefing.hpp"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::launcher {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

/// Ranks 0 and 1 on host 0, which is this one unless said otherwise, rank 2 on host 1.
class BriefingTest : public testing::Test {
 protected:
  BriefingTest() {
    options.program = {"./train", "x"};
    options.tuning = {{"HVD_LOG", "plan"}};
    options.exports = {{"A", "exported"}, {"RANK", "9"}};
    briefing.job_id = "job";
    briefing.own = {"PATH=/bin", "MY_KEY=1"};
    briefing.forwarding = forwarded_variables(briefing.own, options.exports);
    briefing.remote = {false, true};
    briefing.several_machines = true;
  }
  [[nodiscard]] Prepare prepare(std::size_t host) const {
    return briefing.prepare(options, plan, host);
  }

  Options options;
  Plan plan = plan_ranks({{"localhost", 2}, {"b", 1}}, 3);
  Briefing briefing;
};

TEST_F(BriefingTest, AnAgentBesideUsHasTheEnvironmentAlready) {
  const Prepare frame = prepare(0);
  EXPECT_THAT(frame.environment, ElementsAre("HVD_LOG=plan"));
  EXPECT_FALSE(frame.beats);
  EXPECT_EQ(frame.meeting, Meeting::network);
  EXPECT_THAT(frame.program, ElementsAre("./train", "x"));
  ASSERT_EQ(frame.ranks.size(), 2U);
  EXPECT_THAT(frame.ranks[1].variables, Contains("HVD_RANK=1"));
  EXPECT_THAT(frame.ranks[1].variables, Contains("A=exported"));
  EXPECT_THAT(frame.ranks[1].variables, Contains("RANK=9"));  // torch's names are the user's
}

TEST_F(BriefingTest, AnotherMachineGetsWhatIsPassedOn) {
  const Prepare frame = prepare(1);
  EXPECT_THAT(frame.environment, Contains("PATH=/bin"));
  EXPECT_THAT(frame.environment, Contains(StartsWith("PWD=/")));
  EXPECT_THAT(frame.environment, Contains("HVD_LOG=plan"));
  EXPECT_THAT(frame.environment, Not(Contains(StartsWith("MY_KEY"))));
  EXPECT_TRUE(frame.beats);
  EXPECT_EQ(frame.meeting, Meeting::elsewhere);
  ASSERT_EQ(frame.ranks.size(), 1U);
  EXPECT_EQ(frame.ranks[0].rank, 2);
  // All ranks of a job on several machines find the same.
  EXPECT_THAT(briefing.command(options, plan, 0, -1).variables, ElementsAre("PATH=/bin"));
}

TEST_F(BriefingTest, OnOneMachineNothingIsWithheld) {
  plan = plan_ranks({{"localhost", 2}}, 2);
  briefing.remote = {false};
  briefing.several_machines = false;
  EXPECT_EQ(prepare(0).meeting, Meeting::machine);
  const AgentCommand command = briefing.command(options, plan, 0, 7);
  EXPECT_EQ(command.variables, briefing.own);
  EXPECT_EQ(command.standard_input, 7);
}

TEST_F(BriefingTest, ANodeHasItsOwnCommandLine) {
  std::array<std::byte, Secret::kSize> bytes{};
  bytes[3] = std::byte{1};
  briefing.secret = Secret(bytes);
  briefing.nodes_are_their_own = true;
  EXPECT_EQ(prepare(1).directory, "");
  EXPECT_THAT(prepare(1).program, ElementsAre(""));
  EXPECT_FALSE(prepare(1).secret.empty());
  briefing.nodes_have_the_secret = true;
  EXPECT_TRUE(prepare(1).secret.empty());
  EXPECT_FALSE(prepare(0).secret.empty());
}

TEST_F(BriefingTest, MpirunTellsItsRanksWhoTheyAre) {
  plan = plan_ranks({{"localhost", 1}}, 1);
  briefing.remote = {false};
  briefing.places_are_known = true;
  options.exports.clear();
  const Prepare frame = prepare(0);
  EXPECT_THAT(frame.environment, IsEmpty()) << "-x of mpirun's command would not win over it";
  ASSERT_EQ(frame.ranks.size(), 1U);
  EXPECT_THAT(frame.ranks[0].variables, IsEmpty());
}

TEST_F(BriefingTest, TheNetworkIsTheUsersThenTheOptionsThenTheEnvironments) {
  EXPECT_EQ(briefing.interfaces(options), "");
  briefing.own.emplace_back("HVD_NETWORK_INTERFACES=eth0");
  EXPECT_EQ(briefing.interfaces(options), "eth0");
  options.interfaces = "eth1";
  EXPECT_EQ(briefing.interfaces(options), "eth1");
  EXPECT_EQ(prepare(0).interfaces, "eth1");
  options.exports.push_back({"HVD_NETWORK_INTERFACES", "eth2"});
  EXPECT_EQ(briefing.interfaces(options), "eth2");
}

}  // namespace
}  // namespace hvd::launcher
