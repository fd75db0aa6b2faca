// Tests abnormal ends: signals, killed launchers and agents, orphans. Nothing may be left behind.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "directory.hpp"
#include "hvdrun.hpp"

namespace hvd::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A running hvdrun whose ranks and all their descendants hold a lifeline.
class EndTest : public testing::Test {
 protected:
  void start(test::ProcessOptions options) {
    options.inherited = {lifeline.fd()};
    process.emplace(std::move(options));
  }
  /// Waits until every rank has written "ready".
  void wait_until_ready(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      process->wait_for_out("[" + std::to_string(rank) + "]<stdout>:ready\n", test::in(kPatience));
    }
  }
  test::ProcessResult finish() { return process->wait(test::in(kPatience)); }
  void expect_ended_by(int signal) {
    const auto result = finish();
    EXPECT_EQ(result.exit_code(), 128 + signal) << result.err;
    expect_all_gone();
  }
  void expect_all_gone() { EXPECT_TRUE(lifeline.all_gone(test::in(kPatience))); }

  test::Lifeline lifeline;
  std::optional<test::Process> process;
};

/// Ignores every signal except SIGKILL, has a child in a session of its own, and prints "ready".
const std::string kDeaf =
    "trap '' INT TERM HUP; setsid sh -c 'echo ready; sleep 600; sleep 600' & sleep 600; sleep 600";

/// Sleeps in small steps, because a shell runs its traps only between commands.
const std::string kStay = "echo ready; while :; do sleep 0.1; done";

TEST_F(EndTest, AKilledLauncherTakesEverythingAlong) {
  start(hvdrun_script(3, kDeaf));
  wait_until_ready(3);
  process->signal(SIGKILL);
  EXPECT_EQ(finish().signal(), SIGKILL);
  expect_all_gone();
}

TEST_F(EndTest, AKilledAgentTakesEverythingAlong) {
  start(hvdrun_script(2, "echo agent=$PPID; " + kDeaf));
  wait_until_ready(2);
  const std::string& out = process->out();
  const pid_t agent = std::stoi(out.substr(out.find("agent=") + 6));
  ASSERT_EQ(::kill(agent, SIGKILL), 0);
  const auto result = finish();
  EXPECT_EQ(result.exit_code(), 70);
  EXPECT_THAT(result.err, AllOf(HasSubstr("hvdrun: the agent on localhost was killed by SIGKILL\n"),
                                HasSubstr("hvdrun: ranks 0-1 were ended by hvdrun\n")));
  expect_all_gone();
}

TEST_F(EndTest, RanksDieWithAnAgentThatDiesWithItsLauncher) {
  start(hvdrun_script(2,
                      "test $HVD_RANK = 0 && exec sleep 600;"
                      "kill -9 $(awk '/^PPid:/ {print $2}' /proc/$PPID/status) $PPID;"
                      "exec sleep 600"));
  EXPECT_EQ(finish().signal(), SIGKILL);
  expect_all_gone();
}

TEST_F(EndTest, AFailureEndsEvenTheDeaf) {
  start(hvdrun_script(3, "test $HVD_RANK = 1 && exit 7; " + kDeaf));
  EXPECT_EQ(finish().exit_code(), 7);
  expect_all_gone();
}

TEST_F(EndTest, StoppedRanksAreEndedToo) {
  start(hvdrun_script(2, "test $HVD_RANK = 1 && exit 7; kill -STOP $$"));
  EXPECT_EQ(finish().exit_code(), 7);
  expect_all_gone();
}

TEST_F(EndTest, InterruptReachesTheRanksAndGivesThemTime) {
  start(hvdrun_script(2, "trap 'echo caught; exit 0' INT; " + kStay, {"--grace", "60"}));
  wait_until_ready(2);
  process->signal(SIGINT);
  const auto result = finish();
  EXPECT_EQ(result.exit_code(), 128 + SIGINT);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("[0]<stdout>:caught\n"), HasSubstr("[1]<stdout>:caught\n")));
  EXPECT_THAT(result.err, HasSubstr("hvdrun: received signal 2 (SIGINT)"));
  expect_all_gone();
}

/// The grace period is far longer than the test's timeout.
TEST_F(EndTest, AHostThatHasNotAnsweredIsNotWaitedFor) {
  const Directory directory;
  const std::string ssh = directory.path() / "ssh";
  std::ofstream(ssh) << "#!/bin/sh\necho ssh runs >&2; exec sleep 600\n";
  ASSERT_EQ(::chmod(ssh.c_str(), 0755), 0);
  auto options = hvdrun_script(
      2, "true",
      {"-H", "localhost,elsewhere", "--grace", "600", "--start-timeout", "1000", "--verbose"});
  options.environment["PATH"] = directory.path().string() + ":" + std::getenv("PATH");
  start(std::move(options));
  process->wait_for_err("ssh runs", test::in(kPatience));
  process->signal(SIGTSTP);
  EXPECT_TRUE(stops(*process));
  process->signal(SIGCONT);
  process->signal(SIGINT);
  expect_ended_by(SIGINT);
}

TEST_F(EndTest, TerminateAndHangUpHaveTheirOwnCodes) {
  for (const int signal : {SIGTERM, SIGHUP}) {
    test::Process job(hvdrun_script(2, "echo ready; sleep 600"));
    for (const char* rank : {"[0]", "[1]"}) {
      job.wait_for_out(std::string(rank) + "<stdout>:ready", test::in(kPatience));
    }
    job.signal(signal);
    EXPECT_EQ(job.wait(test::in(kPatience)).exit_code(), 128 + signal);
  }
}

TEST_F(EndTest, AfterTheGraceTheDeafAreKilled) {
  start(hvdrun_script(2, kDeaf, {"--grace", "0.2"}));
  wait_until_ready(2);
  process->signal(SIGINT);
  EXPECT_EQ(finish().exit_code(), 128 + SIGINT);
  expect_all_gone();
}

TEST_F(EndTest, ASecondInterruptIsAtOnce) {
  // The grace period is far longer than the test's timeout, so only the second signal can end this.
  start(hvdrun_script(2, "trap 'echo caught' INT; " + kStay, {"--grace", "600"}));
  wait_until_ready(2);
  process->signal(SIGINT);
  process->wait_for_out("[0]<stdout>:caught\n", test::in(kPatience));
  process->wait_for_out("[1]<stdout>:caught\n", test::in(kPatience));
  process->signal(SIGINT);
  EXPECT_EQ(finish().exit_code(), 128 + SIGINT);
  expect_all_gone();
}

TEST_F(EndTest, SignalsRightBeforeTheEndDoNotChangeTheExitCode) {
  for (int round = 0; round < 5; ++round) {
    test::Process job(hvdrun_script(1, "echo ready; exec sleep 600"));
    job.wait_for_out("[0]<stdout>:ready", test::in(kPatience));
    EXPECT_TRUE(signal_until_the_end(job, SIGINT, test::in(kPatience)));
    EXPECT_EQ(job.wait(test::in(kPatience)).exit_code(), 128 + SIGINT);
  }
}

/// After the failure of rank 0, rank 1 has some time to end, in which the signal comes.
TEST_F(EndTest, ASignalToAFailedJobPreventsItsRestart) {
  start(hvdrun_script(2,
                      "trap '' TERM; test $HVD_RESTART_COUNT$HVD_RANK = 00 && exit 7;"
                      "exec sleep 600",
                      {"--max-restarts", "1", "--verbose"}));
  process->wait_for_err("because rank 0 failed", test::in(kPatience));
  process->signal(SIGTERM);
  expect_ended_by(SIGTERM);
}

TEST_F(EndTest, ASignalBetweenTwoTriesEndsTheJob) {
  start(hvdrun_script(1, "test $HVD_RESTART_COUNT = 0 && exit 7; exec sleep 600",
                      {"--max-restarts", "1"}));
  process->wait_for_err(" exited 7 after ", test::in(kPatience));
  process->signal(SIGTERM);
  expect_ended_by(SIGTERM);
}

TEST_F(EndTest, UserSignalsAreOnlyPassedOn) {
  start(hvdrun_script(2, "trap 'echo got; exit 0' USR1; " + kStay));
  wait_until_ready(2);
  process->signal(SIGUSR1);
  const auto result = finish();
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("[0]<stdout>:got\n"), HasSubstr("[1]<stdout>:got\n")));
}

TEST_F(EndTest, OrphansOfAWrapperAreEndedWithTheJob) {
  start(hvdrun_script(2, "sleep 600 & setsid sleep 600 & exit 0"));
  EXPECT_EQ(finish().exit_code(), 0);
  expect_all_gone();
}

/// In some rounds the orphan is about to execute `sleep` when its rank ends.
TEST_F(EndTest, OrphansAreEndedAsSoonAsTheirRankIsOver) {
  const Directory directory;
  directory.make_fifo("held");
  directory.make_fifo("up");
  for (int round = 0; round < 40; ++round) {
    // Rank 1 reads until rank 0's orphan closes the fifo.
    start(hvdrun_script(2, "cd " + directory.path().string() +
                               "; test $HVD_RANK = 1 && { cat held; echo released; exit 0; };"
                               "exec 9>held; setsid sh -c 'echo up >up; exec sleep 600' & cat up"));
    const auto result = finish();
    ASSERT_EQ(result.exit_code(), 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("[1]<stdout>:released\n"));
  }
  expect_all_gone();
}

TEST_F(EndTest, AWrappersChildHasItsGraceThoughTheWrapperIsGone) {
  const Directory directory;
  directory.make_fifo("up");
  start(hvdrun_script(2,
                      "cd " + directory.path().string() +
                          "; test $HVD_RANK = 0 && { cat up; exit 5; };"
                          "sh -c 'trap \"sleep 0.1; echo saved; exit 0\" TERM; echo up >up;" +
                          kStay + "' & wait",
                      {"--grace", "60"}));
  const auto result = finish();
  EXPECT_EQ(result.exit_code(), 5);
  EXPECT_THAT(result.out, HasSubstr("[1]<stdout>:saved\n"));
  expect_all_gone();
}

TEST_F(EndTest, NoSocketIsLeft) {
  start(hvdrun_script(2, "echo ${HVD_STORE#unix:}", {"--no-prefix"}));
  const auto result = finish();
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  const std::string name = result.out.substr(0, result.out.find('\n'));
  ASSERT_GT(name.size(), 10U);
  std::ifstream file("/proc/net/unix");
  const std::string sockets((std::istreambuf_iterator<char>(file)), {});
  ASSERT_FALSE(sockets.empty());
  EXPECT_EQ(sockets.find(name), std::string::npos);
}

}  // namespace
}  // namespace hvd::launcher
