// Tests node mode with whole jobs of two and three hvdruns on the loopback interface.
#include <csignal>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include "base/exit_codes.hpp"
#include "directory.hpp"
#include "nodes.hpp"
#include "supervise/descendants.hpp"
#include "two_hosts.hpp"

namespace hvd::launcher {
namespace {

using test::Process;
using test::ProcessOptions;
using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

struct Nodes {
  std::string port = fresh_port();
  int count = 2;

  [[nodiscard]] ProcessOptions node(int rank, const std::string& script, Words options = {}) const {
    Words words = {"--nnodes",           std::to_string(count), "--node-rank",
                   std::to_string(rank), "--master-port",       port};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"sh", "-c", script});
    return hvdrun(std::move(words));
  }
};

TEST(NodeModeTest, RanksAreNumberedNodeByNode) {
  const Nodes nodes;
  const std::string script =
      "echo $HVD_RANK/$HVD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $HVD_CROSS_RANK/"
      "$HVD_CROSS_SIZE $MASTER_ADDR $0.";
  Process second(nodes.node(1, script, {"--nproc-per-node", "2"}));
  Process first(nodes.node(0, script, {"--nproc-per-node", "1"}));
  const auto of_first = wait(first);
  const auto of_second = wait(second);
  EXPECT_EQ(of_first.exit_code(), 0) << of_first.err;
  EXPECT_EQ(of_second.exit_code(), 0) << of_second.err;
  EXPECT_THAT(of_first.out, AllOf(HasSubstr("[0]<stdout>:0/3 0/1 0 0/2 127.0.0.1 sh.\n"),
                                  HasSubstr("[1]<stdout>:1/3 0/2 1 1/2 127.0.0.1 sh.\n"),
                                  HasSubstr("[2]<stdout>:2/3 1/2 1 0/1 127.0.0.1 sh.\n")));
  EXPECT_EQ(of_second.out, "");
}

TEST(NodeModeTest, ANodeRunsWhatWasTypedThere) {
  const Nodes nodes;
  const Directory directory;
  auto other = nodes.node(1, "echo second $NAME $EXTRA in $(pwd)", {"-x", "EXTRA=7"});
  other.environment = {{"NAME", "b"}};
  other.directory = directory.path();
  Process second(std::move(other));
  auto own = nodes.node(0, "echo first $NAME $EXTRA.", {"-x", "FIRST_ONLY=1"});
  own.environment = {{"NAME", "a"}};
  Process first(std::move(own));
  const auto result = wait(first);
  EXPECT_THAT(result.out, AllOf(HasSubstr("first a .\n"),
                                HasSubstr("second b 7 in " + directory.path().string())));
  EXPECT_EQ(wait(second).exit_code(), 0);
}

TEST(NodeModeTest, RanksOfTheLibraryMeet) {
  const Nodes nodes;
  const auto node = [&](int rank) {
    return hvdrun({"--nnodes=2", "--node-rank=" + std::to_string(rank), "--nproc-per-node=2",
                   "--master-port=" + nodes.port, TRAIN});
  };
  Process second(node(1));
  Process first(node(0));
  const auto result = wait(first);
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  for (const char* rank : {"0", "1", "2", "3"}) {
    EXPECT_THAT(result.out, HasSubstr(std::string("rank ") + rank + " of 4 on "));
  }
  EXPECT_THAT(result.out, HasSubstr("sum 6 ready"));
  EXPECT_EQ(wait(second).exit_code(), 0);
}

TEST(NodeModeTest, AFailureEndsAllWithItsCodeAndTheSameReport) {
  const Nodes nodes;
  test::Lifeline lifeline;
  const auto start = [&](int rank) {
    auto options = nodes.node(rank,
                              "if [ $HVD_RANK = 3 ]; then echo broken >&2; exit 7; fi;"
                              "exec sleep 1000",
                              {"--nproc-per-node=2"});
    options.inherited = {lifeline.fd()};
    return options;
  };
  Process first(start(0));
  Process second(start(1));
  const auto of_first = wait(first);
  const auto of_second = wait(second);
  EXPECT_EQ(of_first.exit_code(), 7);
  EXPECT_EQ(of_second.exit_code(), 7);
  EXPECT_THAT(of_second.err, AllOf(HasSubstr("hvdrun: rank 3 on "), HasSubstr(", node 1 (local 1"),
                                   HasSubstr("exited 7 after"), HasSubstr("[3]<stderr>:broken\n"),
                                   HasSubstr("ranks 0-2 were ended by hvdrun")));
  EXPECT_THAT(of_first.err, HasSubstr(of_second.err));
  EXPECT_TRUE(lifeline.all_gone(test::in(kPatience)));
}

TEST(NodeModeTest, ALateNodeIsWaitedForAndOneTooFewIsCounted) {
  Nodes nodes;
  nodes.count = 3;
  Process first(nodes.node(0, "true", {"--start-timeout", "1.5"}));
  Process second(nodes.node(1, "true"));
  for (Process* process : {&first, &second}) {
    const auto result = wait(*process);
    EXPECT_EQ(result.exit_code(), kExitHostUnreachable);
    EXPECT_EQ(result.err, "hvdrun: 2 of 3 nodes came within 1.5 s; missing: node 2\n");
  }
}

TEST(NodeModeTest, ANodeWithoutNodeZeroSaysWhere) {
  const Nodes nodes;
  const auto result = run(nodes.node(1, "true", {"--start-timeout", "0.3"}));
  EXPECT_EQ(result.exit_code(), kExitHostUnreachable);
  EXPECT_THAT(result.err, AllOf(HasSubstr("node 0 was not reached within 0.3 s"),
                                HasSubstr(nodes.port), HasSubstr("refused")));
}

TEST(NodeModeTest, DifferentCountsOfNodesEndEverywhereWithBoth) {
  Nodes nodes;
  Process first(nodes.node(0, "true"));
  nodes.count = 3;
  Process second(nodes.node(1, "true"));
  const auto of_first = wait(first);
  const auto of_second = wait(second);
  EXPECT_EQ(of_first.exit_code(), kExitUsage);
  EXPECT_EQ(of_second.exit_code(), kExitUsage);
  EXPECT_THAT(of_first.err, AllOf(HasSubstr("node 0 was started with --nnodes 2, but node 1 on "),
                                  HasSubstr("with --nnodes 3")));
  EXPECT_EQ(of_first.err, of_second.err);
}

TEST(NodeModeTest, TwoNodesThatClaimOneRankAreNamed) {
  Nodes nodes;
  nodes.count = 3;
  Process first(nodes.node(0, "true"));
  Process second(nodes.node(1, "true"));
  Process third(nodes.node(1, "true"));
  for (Process* process : {&first, &second, &third}) {
    const auto result = wait(*process);
    EXPECT_EQ(result.exit_code(), kExitUsage);
    EXPECT_THAT(result.err, HasSubstr("two nodes claim node rank 1: one on "));
  }
}

TEST(NodeModeTest, AnotherJobAndANodeTooManyAreTurnedAwayAndTheJobGoesOn) {
  const Nodes nodes;
  const Directory directory;
  const std::string go = (directory.path() / "go").string();
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  Process first(nodes.node(0, "echo up; cat " + go, {"--rdzv-id", "mine"}));
  Process second(nodes.node(1, "echo up", {"--rdzv-id", "mine"}));
  first.wait_for_out("[0]<stdout>:up\n", test::in(kPatience));
  first.wait_for_out("[1]<stdout>:up\n", test::in(kPatience));
  const auto other = run(nodes.node(1, "true", {"--rdzv-id", "other"}));
  EXPECT_EQ(other.exit_code(), kExitProtocol);
  EXPECT_THAT(other.err, AllOf(HasSubstr("cannot join job 'other'"), HasSubstr("mine")));
  const auto extra = run(nodes.node(1, "true", {"--rdzv-id", "mine"}));
  EXPECT_EQ(extra.exit_code(), kExitUsage);
  EXPECT_THAT(extra.err, HasSubstr("has all its 2 nodes already"));
  const auto same_port = run(nodes.node(0, "true"));
  EXPECT_EQ(same_port.exit_code(), kExitResource);
  EXPECT_THAT(same_port.err, AllOf(HasSubstr("node 0 cannot listen at 127.0.0.1:" + nodes.port),
                                   HasSubstr("in use")));
  std::ofstream(go) << "on\n";
  EXPECT_EQ(wait(first).exit_code(), 0);
  EXPECT_EQ(wait(second).exit_code(), 0);
}

TEST(NodeModeTest, C10dNumbersNodesAsTheyCome) {
  Nodes nodes;
  const auto node = [&](const Words& more) {
    Words words = {"--nnodes=3", "--rdzv-backend=c10d", "--rdzv-id=x",
                   "--rdzv-endpoint=localhost:" + nodes.port};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"sh", "-c", "echo node $GROUP_RANK of $HVD_SIZE at $MASTER_ADDR"});
    return hvdrun(std::move(words));
  };
  Process second(node({"--rdzv-conf=is_host=0"}));
  Process first(node({"--rdzv-conf", "is_host=1"}));
  Process third(node({"--rdzv-conf=is_host=0"}));
  const auto result = wait(first);
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_THAT(result.out, HasSubstr(std::string("node ") + rank + " of 3 at localhost\n"));
  }
  EXPECT_EQ(wait(second).exit_code(), 0);
  EXPECT_EQ(wait(third).exit_code(), 0);
}

TEST(NodeModeTest, C10dFindsAHostByItself) {
  const Nodes nodes;
  const auto node = [&] {
    return hvdrun({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + nodes.port,
                   "sh", "-c", "echo up"});
  };
  Process one(node());
  Process other(node());
  const auto of_one = wait(one);
  const auto of_other = wait(other);
  EXPECT_EQ(of_one.exit_code(), 0) << of_one.err;
  EXPECT_EQ(of_other.exit_code(), 0) << of_other.err;
  EXPECT_THAT(of_one.out + of_other.out,
              AllOf(HasSubstr("[0]<stdout>:up\n"), HasSubstr("[1]<stdout>:up\n")));
}

TEST(NodeModeTest, ANodeThatIsEndedBeforeAllHaveComeMayComeAgain) {
  Nodes nodes;
  nodes.count = 3;
  Process first(nodes.node(0, "echo up", {"--verbose", "--start-timeout", "1000"}));
  Process ended(nodes.node(1, "true", {"--start-timeout", "1000"}));
  first.wait_for_err("has joined", test::in(kPatience));
  ended.signal(SIGINT);
  const auto of_ended = wait(ended);
  EXPECT_EQ(of_ended.exit_code(), kExitSignalBase + SIGINT);
  EXPECT_EQ(of_ended.err, "hvdrun: received signal 2 (SIGINT)\n");
  Process second(nodes.node(1, "echo up"));
  Process third(nodes.node(2, "echo up"));
  for (Process* process : {&first, &second, &third}) {
    const auto result = wait(*process);
    EXPECT_EQ(result.exit_code(), 0) << result.err;
  }
}

/// A node handles signals itself only once it has reached node 0, so here the signal kills the
/// agent.
TEST(NodeModeTest, ASignalToANodeThatLooksForNode0IsReported) {
  const Nodes nodes;
  Process node(nodes.node(1, "true", {"--start-timeout", "1000"}));
  const Deadline deadline = test::in(kPatience);
  // The guard passes signals on from before it starts the agent.
  while (children_of(node.pid()).empty() && Clock::now() < deadline) ::poll(nullptr, 0, 1);
  node.signal(SIGTERM);
  const auto result = wait(node);
  EXPECT_EQ(result.exit_code(), kExitSignalBase + SIGTERM);
  EXPECT_EQ(result.err, "hvdrun: received signal 15 (SIGTERM)\n");
}

/// A parent may leave the signal ignored.
TEST(NodeModeTest, TheEndOfAnAgentIsNoticedThoughSigchldWasIgnored) {
  const Nodes nodes;
  Process first(nodes.node(0, "true"));
  ProcessOptions ignoring = nodes.node(1, "true");
  ignoring.arguments.insert(ignoring.arguments.begin(), {"env", "--ignore-signal=CHLD"});
  Process second(std::move(ignoring));
  EXPECT_EQ(wait(first).exit_code(), 0);
  EXPECT_EQ(wait(second).exit_code(), 0);
}

TEST(NodeModeTest, ARestartBringsAllNodesBack) {
  const Nodes nodes;
  const std::string script =
      "echo try $HVD_RESTART_COUNT of $HVD_RANK; [ $HVD_RANK$HVD_RESTART_COUNT != 10 ]";
  Process first(nodes.node(0, script, {"--max-restarts", "2"}));
  Process second(nodes.node(1, script));
  const auto of_first = wait(first);
  const auto of_second = wait(second);
  EXPECT_EQ(of_first.exit_code(), 0) << of_first.err;
  EXPECT_EQ(of_second.exit_code(), 0) << of_second.err;
  EXPECT_THAT(of_first.out,
              AllOf(HasSubstr("[1]<stdout>:try 0 of 1\n"), HasSubstr("[0]<stdout>:try 1 of 0\n"),
                    HasSubstr("[1]<stdout>:try 1 of 1\n")));
  EXPECT_THAT(of_second.err, AllOf(HasSubstr("exited 1 after"), HasSubstr("hvdrun: restart 1\n")));
}

TEST(NodeModeTest, RanksKeepTheUsersLimitOnDescriptorsAlsoAfterARestart) {
  const Nodes nodes;
  const auto node = [&](int rank, const Words& more) {
    const std::string script =
        "echo $HVD_RANK$HVD_RESTART_COUNT $(ulimit -Sn); [ $HVD_RANK$HVD_RESTART_COUNT != 10 ]";
    ProcessOptions options = nodes.node(rank, script, more);
    const Words shell = {"sh", "-c", "ulimit -Sn 200; exec \"$@\"", "sh"};
    options.arguments.insert(options.arguments.begin(), shell.begin(), shell.end());
    return options;
  };
  Process first(node(0, {"--max-restarts", "1"}));
  Process second(node(1, {}));
  const auto result = wait(first);
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(wait(second).exit_code(), 0);
  for (const char* line : {":00 200\n", ":10 200\n", ":01 200\n", ":11 200\n"}) {
    EXPECT_THAT(result.out, HasSubstr(line));
  }
}

TEST(NodeModeTest, ASignalToAnyNodeReachesAllRanksWithTheirGrace) {
  for (const int node : {0, 1}) {
    const Nodes nodes;
    const std::string script =
        "trap 'echo saved $HVD_RANK; exit 0' TERM; echo up; while :; do sleep 0.05; done";
    Process first(nodes.node(0, script));
    Process second(nodes.node(1, script));
    first.wait_for_out("[0]<stdout>:up\n", test::in(kPatience));
    first.wait_for_out("[1]<stdout>:up\n", test::in(kPatience));
    ::kill((node == 0 ? first : second).pid(), SIGTERM);
    const auto of_first = wait(first);
    const auto of_second = wait(second);
    EXPECT_EQ(of_first.exit_code(), kExitSignalBase + SIGTERM);
    EXPECT_EQ(of_second.exit_code(), kExitSignalBase + SIGTERM);
    EXPECT_THAT(of_first.out, AllOf(HasSubstr("saved 0\n"), HasSubstr("saved 1\n")));
  }
}

// Kubernetes signals all nodes, and Slurm all their processes too. Here the second signal comes
// when the first has arrived.
TEST(NodeModeTest, ASignalToAllNodesIsOneRequest) {
  for (const int node : {0, 1}) {
    const Nodes nodes;
    const std::string script =
        "trap 'echo asked; read line < \"$HOLD.$HVD_RANK\"; echo saved $HVD_RANK; exit 0' TERM; "
        "echo up; "
        "while :; do sleep 0.05; done";
    const Directory directory;
    const std::string hold = directory.path() / "hold";
    for (const char* rank : {".0", ".1"}) ASSERT_EQ(::mkfifo((hold + rank).c_str(), 0600), 0);
    const auto start = [&](int rank) {
      auto options = nodes.node(rank, script, {"--grace", "60"});
      options.environment = {{"HOLD", hold}};
      return options;
    };
    Process first(start(0));
    Process second(start(1));
    first.wait_for_out("[0]<stdout>:up\n", test::in(kPatience));
    first.wait_for_out("[1]<stdout>:up\n", test::in(kPatience));
    const pid_t agent = child_of(second.pid());
    const auto signal_all_of = [&](int which) {
      ::kill((which == 0 ? first : second).pid(), SIGTERM);
      if (which == 1) ::kill(agent, SIGTERM);
    };
    signal_all_of(node);
    first.wait_for_out("[0]<stdout>:asked\n", test::in(kPatience));
    first.wait_for_out("[1]<stdout>:asked\n", test::in(kPatience));
    signal_all_of(1 - node);
    for (const char* rank : {".0", ".1"}) std::ofstream(hold + rank) << "go\n";
    const auto of_first = wait(first);
    EXPECT_EQ(of_first.exit_code(), kExitSignalBase + SIGTERM);
    EXPECT_EQ(wait(second).exit_code(), kExitSignalBase + SIGTERM);
    EXPECT_THAT(of_first.out, AllOf(HasSubstr("saved 0\n"), HasSubstr("saved 1\n")));
  }
}

enum class Victim { leader, follower, agent };

TEST(NodeModeTest, WhoeverIsKilledNothingIsLeftAnywhere) {
  for (const Victim victim : {Victim::leader, Victim::follower, Victim::agent}) {
    const Nodes nodes;
    test::Lifeline lifeline;
    const auto node = [&](int rank) {
      auto options = nodes.node(rank, "echo up; (sleep 1000 & exec sleep 1000)");
      options.inherited = {lifeline.fd()};
      return options;
    };
    Process first(node(0));
    Process second(node(1));
    first.wait_for_out("[0]<stdout>:up\n", test::in(kPatience));
    first.wait_for_out("[1]<stdout>:up\n", test::in(kPatience));
    const auto start = Clock::now();
    ::kill(victim == Victim::leader     ? first.pid()
           : victim == Victim::follower ? second.pid()
                                        : child_of(second.pid()),
           SIGKILL);
    const auto of_first = wait(first);
    const auto of_second = wait(second);
    EXPECT_TRUE(lifeline.all_gone(test::in(kPatience)));
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));  // 2 s on an idle machine
    if (victim == Victim::leader) {
      EXPECT_EQ(of_second.exit_code(), kExitHostUnreachable);
      EXPECT_THAT(of_second.err, HasSubstr("lost node 0 at 127.0.0.1:" + nodes.port));
    } else {
      EXPECT_EQ(of_first.exit_code(), kExitHostUnreachable);
      EXPECT_THAT(of_first.err, AllOf(HasSubstr("lost "), HasSubstr(", node 1: its hvdrun")));
    }
    if (victim == Victim::agent) {
      EXPECT_EQ(of_second.exit_code(), kExitHostUnreachable);
      EXPECT_THAT(of_second.err, HasSubstr("agent of this node was killed by SIGKILL"));
    }
  }
}

TEST(NodeModeTest, AFrozenAgentIsGivenUpAndEndsWhenItGoesOn) {
  const Nodes nodes;
  test::Lifeline lifeline;
  const auto node = [&](int rank) {
    auto options = nodes.node(rank, "echo up; exec sleep 1000", {"--host-timeout", "2"});
    options.inherited = {lifeline.fd()};
    return options;
  };
  Process first(node(0));
  Process second(node(1));
  first.wait_for_out("[0]<stdout>:up\n", test::in(kPatience));
  first.wait_for_out("[1]<stdout>:up\n", test::in(kPatience));
  const pid_t agent = child_of(second.pid());
  ::kill(agent, SIGSTOP);
  const auto of_first = wait(first);
  EXPECT_EQ(of_first.exit_code(), kExitHostUnreachable);
  EXPECT_THAT(of_first.err, AllOf(HasSubstr(", node 1 was not heard from for 1.4 s"),
                                  HasSubstr("hvdrun: rank 0 was ended by hvdrun\n")));
  ::kill(agent, SIGCONT);
  EXPECT_EQ(wait(second).exit_code(), kExitHostUnreachable);
  EXPECT_TRUE(lifeline.all_gone(test::in(kPatience)));
}

TEST(NodeModeTest, OneNodeIsEnough) {
  const auto result =
      run(hvdrun({"--nproc_per_node=2", "--use_env", "sh", "-c", "echo $HVD_RANK of $HVD_SIZE"}));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("0 of 2\n"), HasSubstr("1 of 2\n")));
}

// ModelArts copies the folder of the user's code into user-job-dir, and starts elsewhere.
TEST(NodeModeTest, TwoModelArtsNodesByTheirVariablesAndFolders) {
  const Directory home;
  const std::filesystem::path jobs = home.path() / "modelarts/user-job-dir";
  std::filesystem::create_directories(jobs / "demo-code");
  std::filesystem::create_directories(home.path() / "modelarts/outputs");
  const std::filesystem::path program = jobs / "demo-code/train_of_the_user";
  std::ofstream(program) << "#!/bin/sh\necho $HVD_RANK of $HVD_SIZE $1\n";
  ASSERT_EQ(::chmod(program.c_str(), 0755), 0);

  const std::string port = fresh_port();
  const auto node = [&](const std::string& index) {
    auto options = hvdrun({"--master_port", port, "train_of_the_user", "--data_url=x"});
    options.directory = home.path();
    options.environment = {{"VC_WORKER_HOSTS", "localhost,other"},
                           {"VC_TASK_INDEX", index},
                           {"VC_WORKER_NUM", "2"},
                           {"MA_NUM_HOSTS", "2"},
                           {"MA_NUM_GPUS", "2"},
                           {"MA_TASK_NAME", "worker"},
                           {"MA_MOUNT_PATH", home.path()},
                           {"MA_JOB_DIR", jobs}};
    return options;
  };
  Process second(node("1"));
  Process first(node("0"));
  const auto result = wait(first);
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  for (const char* rank : {"0", "1", "2", "3"}) {
    EXPECT_THAT(result.out, HasSubstr(std::string(rank) + " of 4 --data_url=x\n"));
  }
  EXPECT_EQ(wait(second).exit_code(), 0);
}

}  // namespace
}  // namespace hvd::launcher
