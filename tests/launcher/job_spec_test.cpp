#include "job/job_spec.hpp"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/own_part.hpp"

namespace hvd::launcher {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;
using testing::StartsWith;

/// Ranks 0 and 1 on host 0, which is this one unless said otherwise, rank 2 on host 1.
class JobSpecTest : public testing::Test {
 protected:
  JobSpecTest() {
    options.program = {"./train", "x"};
    options.tuning = {{"HVD_LOG", "plan"}};
    options.exports = {{"A", "exported"}, {"RANK", "9"}};
    job_spec.job_id = "job";
    job_spec.own = {"PATH=/bin", "MY_KEY=1"};
    job_spec.forwarding = forwarded_variables(job_spec.own, options.exports);
    job_spec.remote = {false, true};
    job_spec.several_machines = true;
  }
  [[nodiscard]] Prepare prepare(std::size_t host) const {
    return job_spec.prepare(options, plan, host);
  }

  Options options;
  Plan plan = plan_ranks({{"localhost", 2}, {"b", 1}}, 3);
  JobSpec job_spec;
};

TEST_F(JobSpecTest, AnAgentBesideUsHasTheEnvironmentAlready) {
  const Prepare frame = prepare(0);
  EXPECT_THAT(frame.environment, ElementsAre("HVD_LOG=plan"));
  EXPECT_EQ(frame.host_timeout, std::chrono::milliseconds{0});
  EXPECT_EQ(frame.rendezvous, RendezvousReach::network);
  EXPECT_THAT(frame.program, ElementsAre("./train", "x"));
  ASSERT_EQ(frame.ranks.size(), 2U);
  EXPECT_THAT(frame.ranks[1].variables, Contains("HVD_RANK=1"));
  EXPECT_THAT(frame.ranks[1].variables, Contains("A=exported"));
  EXPECT_THAT(frame.ranks[1].variables, Contains("RANK=9"));  // the user may set torch's names
}

TEST_F(JobSpecTest, EveryAgentLearnsHowToBind) {
  options.binding = {.to = BindTo::core, .by = MapBy::numa, .cores = 2};
  EXPECT_EQ(prepare(0).binding, options.binding);
  EXPECT_EQ(prepare(1).binding, options.binding);
}

TEST_F(JobSpecTest, AnotherMachineGetsWhatIsPassedOn) {
  const Prepare frame = prepare(1);
  EXPECT_THAT(frame.environment, Contains("PATH=/bin"));
  EXPECT_THAT(frame.environment, Contains(StartsWith("PWD=/")));
  EXPECT_THAT(frame.environment, Contains("HVD_LOG=plan"));
  EXPECT_THAT(frame.environment, Not(Contains(StartsWith("MY_KEY"))));
  EXPECT_EQ(frame.host_timeout, options.host_timeout);
  EXPECT_EQ(frame.rendezvous, RendezvousReach::elsewhere);
  ASSERT_EQ(frame.ranks.size(), 1U);
  EXPECT_EQ(frame.ranks[0].rank, 2);
  // All ranks of a job on several machines find the same.
  EXPECT_THAT(job_spec.command(options, 0, plan.hosts[0], -1).variables, ElementsAre("PATH=/bin"));
}

TEST_F(JobSpecTest, OnOneMachineNothingIsWithheld) {
  plan = plan_ranks({{"localhost", 2}}, 2);
  job_spec.remote = {false};
  job_spec.several_machines = false;
  EXPECT_EQ(prepare(0).rendezvous, RendezvousReach::machine);
  const AgentCommand command = job_spec.command(options, 0, plan.hosts[0], 7);
  EXPECT_EQ(command.variables, job_spec.own);
  EXPECT_EQ(command.standard_input, 7);
}

TEST_F(JobSpecTest, ANodeHasItsOwnCommandLine) {
  std::array<std::byte, Secret::kSize> bytes{};
  bytes[3] = std::byte{1};
  job_spec.secret = Secret(bytes);
  job_spec.agents_are_their_own = true;
  EXPECT_EQ(prepare(1).directory, "");
  EXPECT_THAT(prepare(1).program, ElementsAre(""));
  EXPECT_FALSE(prepare(1).secret.empty());
  job_spec.agents_have_the_secret = true;
  EXPECT_TRUE(prepare(1).secret.empty());
  EXPECT_FALSE(prepare(0).secret.empty());
}

TEST_F(JobSpecTest, AnAgentsOwnPartTakesThePlaceOfWhatComes) {
  Prepare own;
  own.directory = "/own";
  own.program = {"./own", "x"};
  own.environment = {"A=own"};
  own.ranks = {{.rank = 0, .variables = {"HVD_RESULT_FD=5", "HVD_RANK=7"}}};
  own.binding.to = BindTo::none;
  Prepare frame = prepare(1);
  const Secret secret = frame.secret;
  frame.ranks[0].variables.emplace_back("LD_PRELOAD=/evil");
  apply_own_part(own, frame);
  EXPECT_EQ(frame.directory, "/own");
  EXPECT_THAT(frame.program, ElementsAre("./own", "x"));
  EXPECT_THAT(frame.environment, ElementsAre("A=own"));
  EXPECT_EQ(frame.secret.bytes(), secret.bytes()) << "it had none of its own";
  EXPECT_EQ(frame.binding, own.binding);
  const Variables& first = frame.ranks[0].variables;
  EXPECT_EQ(value_of(first, "HVD_RESULT_FD"), "5");
  EXPECT_EQ(value_of(first, "HVD_RANK"), std::to_string(frame.ranks[0].rank));
  EXPECT_FALSE(contains(first, "LD_PRELOAD"));
  own.secret = Secret::random();
  apply_own_part(own, frame);
  EXPECT_EQ(frame.secret.bytes(), own.secret.bytes());
}

TEST_F(JobSpecTest, TheNetworkIsTheUsersThenTheOptionsThenTheEnvironments) {
  EXPECT_EQ(chosen_interfaces(options, job_spec.own), "");
  job_spec.own.emplace_back("HVD_NETWORK_INTERFACES=eth0");
  EXPECT_EQ(chosen_interfaces(options, job_spec.own), "eth0");
  options.interfaces = "eth1";
  EXPECT_EQ(chosen_interfaces(options, job_spec.own), "eth1");
  EXPECT_EQ(prepare(0).interfaces, "eth1");
  options.exports.push_back({"HVD_NETWORK_INTERFACES", "eth2"});
  EXPECT_EQ(chosen_interfaces(options, job_spec.own), "eth2");
}

}  // namespace
}  // namespace hvd::launcher
