// Tests elastic jobs on two hosts, which come and go, and lose ranks, agents and their cable.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_codes.hpp"
#include "hvdrun.hpp"
#include "two_hosts.hpp"

namespace hvd::launcher {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// A job whose hvdrun runs on host a and gets its hosts from a script. A host that has failed stays
/// out for an hour, unless the test says otherwise.
class ElasticHostsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    lacks_ = TwoHosts::missing();
    if (!lacks_.empty()) return;
    hosts_ = std::make_unique<TwoHosts>();
    std::filesystem::copy_file(ELASTIC_LOOP, work() / "train");
  }
  static void TearDownTestSuite() { hosts_.reset(); }
  void SetUp() override {
    if (!lacks_.empty()) GTEST_SKIP() << "needs " << lacks_;
    std::filesystem::remove(work() / "stop");
    hosts_->set_cable(true);
  }
  void TearDown() override {
    if (!hosts_) return;
    job_.reset();
    EXPECT_TRUE(hosts_->all_gone(test::in(kPatience))) << hosts_->left();
    for (const char* host : {"a", "b"}) {
      EXPECT_THAT(hosts_->shared_memory(host), IsEmpty());
      EXPECT_THAT(hosts_->sockets(host), IsEmpty());
    }
  }

  static std::filesystem::path work() { return hosts_->shared().path() / "work"; }
  static void write(const std::string& name, const std::string& text = "") {
    std::ofstream(work() / (name + ".new")) << text;
    std::filesystem::rename(work() / (name + ".new"), work() / name);
  }
  void start(const std::string& listed, int ranks, int least,
             const std::string& cooldown = "3600,3600") {
    write("hosts", listed);
    job_.emplace(
        hosts_->on("a", {HVDRUN, "-np", std::to_string(ranks), "--min-np", std::to_string(least),
                         "--max-np", "8", "--host-discovery-script", "cat hosts", "--host-timeout",
                         "2", "--blacklist-cooldown-range", cooldown, "./train", "."}));
  }
  void wait_for(int worker, int rank, int size) {
    job_->wait_for_out(": worker " + std::to_string(worker) + " is rank " + std::to_string(rank) +
                           " of " + std::to_string(size) + ", pid ",
                       test::in(kPatience));
  }
  /// Waits for a generation in which the worker has this rank, and expects its place among the
  /// hosts there.
  void expect_place(int worker, int rank, int size, const std::string& place) {
    wait_for(worker, rank, size);
    EXPECT_THAT(job_->out(),
                testing::ContainsRegex(fmt::format("worker {} is rank {} of {}, pid [0-9]+, {}",
                                                   worker, rank, size, place)));
  }
  static void kill_all(const std::string& host, const std::string& name, int signal) {
    for (const pid_t pid : processes(host, name)) ::kill(pid, signal);
  }
  /// Kills the agent of the host, its guard and its workers at once.
  static void kill_host(const std::string& host) {
    for (const pid_t pid : hosts_->processes(host)) ::kill(pid, SIGKILL);
  }
  /// Returns the processes of the host with this name.
  static std::vector<pid_t> processes(const std::string& host, const std::string& name) {
    std::vector<pid_t> found;
    for (const pid_t pid : hosts_->processes(host)) {
      if (name_of(pid) == name) found.push_back(pid);
    }
    return found;
  }
  test::ProcessResult finish() {
    write("stop");
    test::ProcessResult result = job_->wait(test::in(kPatience));
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("has finished"));
    return result;
  }

  static std::string lacks_;
  static std::unique_ptr<TwoHosts> hosts_;
  std::optional<test::Process> job_;
};

std::string ElasticHostsTest::lacks_;
std::unique_ptr<TwoHosts> ElasticHostsTest::hosts_;

TEST_F(ElasticHostsTest, AHostComesAndTheFirstOneGoes) {
  start("a:2\n", 2, 2);
  wait_for(0, 0, 2);
  write("hosts", "a:2\nb:2\n");
  wait_for(0, 0, 4);
  expect_place(2, 2, 4, "local 0 of 2, cross 1 of 2");
  expect_place(3, 3, 4, "local 1 of 2, cross 1 of 2");
  write("hosts", "b:2\n");
  wait_for(3, 1, 2);
  expect_place(2, 0, 2, "local 0 of 2, cross 0 of 1");
  const auto result = finish();
  EXPECT_THAT(result.out, HasSubstr("worker 0 leaves"));
  EXPECT_THAT(result.err, HasSubstr("hvdrun: the hosts are b:2\n"));
}

/// A context would find out the places itself. This worker prints those that hvdrun has sent.
TEST_F(ElasticHostsTest, WorkersAreToldTheirPlacesAmongTheHosts) {
  job_.emplace(hosts_->on("a", {HVDRUN, "--min-np", "4", "-H", "a:2,b:2", ELASTIC_WORKER}));
  for (const char* line : {"[0]<stdout>:generation 1: rank 0 of 4, local 0 of 2, cross 0 of 2\n",
                           "[1]<stdout>:generation 1: rank 1 of 4, local 1 of 2, cross 0 of 2\n",
                           "[2]<stdout>:generation 1: rank 2 of 4, local 0 of 2, cross 1 of 2\n",
                           "[3]<stdout>:generation 1: rank 3 of 4, local 1 of 2, cross 1 of 2\n"}) {
    job_->wait_for_out(line, test::in(kPatience));
  }
}

TEST_F(ElasticHostsTest, ALostRankOfEitherHost) {
  start("a:2\nb:2\n", 4, 2);
  wait_for(3, 3, 4);
  ::kill(processes("b", "train").back(), SIGKILL);
  wait_for(0, 0, 3);
  ::kill(processes("a", "train").front(), SIGKILL);
  wait_for(1, 0, 2);
  (void)finish();
}

TEST_F(ElasticHostsTest, AStoppedRankOfTheOtherHost) {
  start("a:2\nb:2\n", 4, 2);
  wait_for(3, 3, 4);
  ::kill(processes("b", "train").back(), SIGSTOP);
  wait_for(0, 0, 3);
  EXPECT_THAT(finish().err, HasSubstr("killing worker "));
}

TEST_F(ElasticHostsTest, TheAgentOfTheOtherHost) {
  start("a:2\nb:2\n", 4, 2);
  wait_for(3, 3, 4);
  kill_all("b", "hvdrun", SIGKILL);
  wait_for(1, 1, 2);
  (void)finish();
}

TEST_F(ElasticHostsTest, TheOtherHostAsAWhole) {
  start("a:2\nb:2\n", 4, 2);
  wait_for(3, 3, 4);
  kill_host("b");
  wait_for(1, 1, 2);
  (void)finish();
}

TEST_F(ElasticHostsTest, TheHostOfRankZeroAsAWhole) {
  start("b:2\na:2\n", 4, 2);
  wait_for(0, 0, 4);
  wait_for(3, 3, 4);
  kill_host("b");
  wait_for(2, 0, 2);
  wait_for(3, 1, 2);
  (void)finish();
}

// Host b is behind a jump host, whose ssh client leaves a process behind.
TEST_F(ElasticHostsTest, NothingStaysOfAConnectionThroughAJumpHost) {
  const auto on_a = [](const std::string& script) {
    EXPECT_EQ(run(hosts_->on("a", {"sh", "-c", script})).exit_code(), 0);
  };
  on_a(
      "printf 'Host b\\n ProxyCommand sh -c \"sleep 600 & exec ssh -W [%%h]:%%p 10.77.0.1\"\\n'"
      " > /root/.ssh/config");
  start("a:1\nb:1\n", 2, 1);
  wait_for(1, 1, 2);
  ASSERT_EQ(processes("a", "sleep").size(), 1U);
  kill_host("b");
  wait_for(0, 0, 1);
  // The agent of host a is the only child of hvdrun that stays.
  const pid_t hvdrun = processes("a", "hvdrun").at(0);
  const auto children = [hvdrun] {
    std::ifstream list(fmt::format("/proc/{}/task/{}/children", hvdrun, hvdrun));
    return std::distance(std::istream_iterator<pid_t>(list), {});
  };
  const Deadline deadline = test::in(kPatience);
  while (children() != 1 || !processes("a", "sleep").empty()) {
    ASSERT_LT(Clock::now(), deadline) << hosts_->left();
  }
  (void)finish();
  on_a("rm /root/.ssh/config");
}

TEST_F(ElasticHostsTest, ALostHostReturnsAfterItsCooldown) {
  start("a:2\nb:2\n", 4, 2, "0.5,1");
  wait_for(3, 3, 4);
  kill_host("b");
  wait_for(1, 1, 2);
  wait_for(4, 2, 4);
  wait_for(5, 3, 4);
  (void)finish();
}

TEST_F(ElasticHostsTest, AHostThatCannotBeReachedAtFirstIsDoneWithout) {
  start("a:2\nnosuch:2\n", 4, 2);
  wait_for(0, 0, 2);
  wait_for(1, 1, 2);
  EXPECT_THAT(finish().err, HasSubstr("nosuch"));
}

/// A host that is about to be preempted tells all its processes.
TEST_F(ElasticHostsTest, TheRanksOfAHostAreAskedToLeaveAndComeBackWithIt) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    std::filesystem::remove(work() / "stop");
    start("a:2\nb:2\n", 4, 2);
    wait_for(3, 3, 4);
    wait_for(2, 2, 4);
    kill_all("b", "train", signal);
    wait_for(1, 1, 2);
    write("hosts", "a:2\n");
    job_->wait_for_err("the hosts are a:2\n", test::in(kPatience));
    write("hosts", "a:2\nb:2\n");
    wait_for(5, 3, 4);
    const auto result = finish();
    EXPECT_THAT(result.out, HasSubstr("worker 2 leaves"));
    EXPECT_THAT(result.err, HasSubstr("leaves, since it was asked to stop"));
    EXPECT_THAT(result.err, testing::Not(HasSubstr("SIG")));
  }
}

TEST_F(ElasticHostsTest, AHostLeavesWhenOneOfItsRanksIsAskedTo) {
  start("a:2\nb:2\n", 4, 2);
  wait_for(3, 3, 4);
  wait_for(2, 2, 4);
  ::kill(processes("b", "train").back(), SIGTERM);
  wait_for(1, 1, 2);
  const auto result = finish();
  EXPECT_THAT(result.out,
              testing::AllOf(HasSubstr("worker 2 leaves"), HasSubstr("worker 3 leaves")));
}

TEST_F(ElasticHostsTest, OnlyTheRankLeavesWithoutWhoseHostTooFewWouldBeLeft) {
  start("a:2\nb:2\n", 4, 3);
  wait_for(3, 3, 4);
  wait_for(2, 2, 4);
  ::kill(processes("b", "train").back(), SIGTERM);
  wait_for(1, 1, 3);
  (void)finish();
}

TEST_F(ElasticHostsTest, AllHostsAreLost) {
  start("a:1\nb:1\n", 2, 1);
  wait_for(0, 0, 2);
  wait_for(1, 1, 2);
  kill_host("b");
  kill_all("a", "train", SIGKILL);
  const auto result = job_->wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), kExitRetry);
  EXPECT_THAT(result.err, HasSubstr("has the state"));
}

TEST_F(ElasticHostsTest, ACutCable) {
  start("a:2\nb:2\n", 4, 2);
  wait_for(3, 3, 4);
  hosts_->set_cable(false);
  wait_for(1, 1, 2);
  EXPECT_THAT(finish().err, HasSubstr("hvdrun: b was not heard from"));
}

TEST_F(ElasticHostsTest, ACutCableToTheHostOfRankZero) {
  start("b:2\na:2\n", 4, 2);
  wait_for(3, 3, 4);
  wait_for(0, 0, 4);
  hosts_->set_cable(false);
  wait_for(2, 0, 2);
  wait_for(3, 1, 2);
  (void)finish();
}

}  // namespace
}  // namespace hvd::launcher
