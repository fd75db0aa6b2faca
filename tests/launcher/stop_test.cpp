// A job is asked to stop in every way that there is, and its ranks end after the same step.
#include <csignal>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hvdrun.hpp"

namespace hvd::launcher {
namespace {

constexpr int kRanks = 3;

class StopTest : public testing::Test {
 protected:
  void start(const std::vector<std::string>& arguments = {},
             std::vector<std::string> options = {}) {
    options.insert(options.end(), {"-np", std::to_string(kRanks), STOPPING});
    options.insert(options.end(), arguments.begin(), arguments.end());
    job.emplace(hvdrun(std::move(options)));
  }

  static std::string prefix(int rank) { return "[" + std::to_string(rank) + "]<stdout>:"; }

  /// Returns the process of rank 1, once all ranks have made some steps.
  pid_t rank_1_when_ready() {
    for (int rank = 0; rank < kRanks; ++rank) {
      job->wait_for_out(prefix(rank) + "pid ", test::in(kPatience));
    }
    const std::string& out = job->out();
    const std::string words = prefix(1) + "pid ";
    return std::stoi(out.substr(out.find(words) + words.size()));
  }

  /// Returns the parent of a process.
  static pid_t parent_of(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
    std::string word;
    for (int i = 0; i < 4; ++i) status >> word;  // pid, name, state, parent
    return std::stoi(word);
  }

  /// Returns the step after which each rank has stopped.
  std::vector<int> steps(const test::ProcessResult& result) {
    std::vector<int> found;
    const std::string words = "stopped after ";
    for (std::size_t at = 0; (at = result.out.find(words, at)) != std::string::npos;) {
      at += words.size();
      found.push_back(std::stoi(result.out.substr(at)));
    }
    return found;
  }

  void expect_same_step(const test::ProcessResult& result) {
    const std::vector<int> stopped = steps(result);
    ASSERT_EQ(stopped.size(), static_cast<std::size_t>(kRanks)) << result.out << result.err;
    EXPECT_THAT(stopped, testing::Each(stopped.front()));
  }

  test::ProcessResult finish() { return job->wait(test::in(kPatience)); }

  std::optional<test::Process> job;
};

TEST_F(StopTest, ASignalToOneRankStopsAllAfterTheSameStep) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    start();
    ASSERT_EQ(::kill(rank_1_when_ready(), signal), 0);
    const auto result = finish();
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    expect_same_step(result);
  }
}

TEST_F(StopTest, ASignalToTheAgentStopsAllAfterTheSameStep) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    start();
    ASSERT_EQ(::kill(parent_of(rank_1_when_ready()), signal), 0);
    const auto result = finish();
    EXPECT_EQ(result.exit_code(), 0) << result.err;
    expect_same_step(result);
  }
}

// So do schedulers and systemd.
TEST_F(StopTest, ASignalToAllProcessesStopsAllAfterTheSameStep) {
  start();
  const pid_t rank = rank_1_when_ready();
  const pid_t agent = parent_of(rank);
  for (const pid_t pid : {job->pid(), agent, rank}) ASSERT_EQ(::kill(pid, SIGTERM), 0);
  const auto result = finish();
  EXPECT_EQ(result.exit_code(), 128 + SIGTERM);
  expect_same_step(result);
}

TEST_F(StopTest, HvdrunForwardsSignalsToAllRanks) {
  start();
  static_cast<void>(rank_1_when_ready());
  job->signal(SIGUSR1);
  const auto result = finish();
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  expect_same_step(result);

  start();
  static_cast<void>(rank_1_when_ready());
  job->signal(SIGTERM);
  const auto ended = finish();
  EXPECT_EQ(ended.exit_code(), 128 + SIGTERM);
  expect_same_step(ended);
}

TEST_F(StopTest, RanksThatHaveAgreedToStopGetTheGraceOnceMore) {
  start({"slow"}, {"--grace", "2"});
  static_cast<void>(rank_1_when_ready());
  job->signal(SIGTERM);
  expect_same_step(finish());
}

TEST_F(StopTest, AProgramAsksItself) {
  start({"request"});
  const auto result = finish();
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  expect_same_step(result);
}

TEST_F(StopTest, AHandlerOfTheProgramStays) {
  start({"own"});
  ASSERT_EQ(::kill(rank_1_when_ready(), SIGTERM), 0);
  const auto result = finish();
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  expect_same_step(result);
}

TEST_F(StopTest, AProgramThatNeverAsksDiesOfTheSignal) {
  start({"never"});
  ASSERT_EQ(::kill(rank_1_when_ready(), SIGTERM), 0);
  const auto killed = finish();
  EXPECT_EQ(killed.exit_code(), 128 + SIGTERM);
  EXPECT_THAT(killed.err, testing::ContainsRegex("rank 1 on .* killed by signal 15"));

  start({"never"});
  ASSERT_EQ(::kill(parent_of(rank_1_when_ready()), SIGTERM), 0);
  const auto by_agent = finish();
  EXPECT_EQ(by_agent.exit_code(), 128 + SIGTERM);
  EXPECT_THAT(by_agent.err, testing::ContainsRegex("rank . on .* killed by signal 15"));

  // The grace is longer than the patience of `finish`, so a rank that went on would fail the test.
  start({"never"}, {"--grace", "600"});
  static_cast<void>(rank_1_when_ready());
  job->signal(SIGTERM);
  EXPECT_EQ(finish().exit_code(), 128 + SIGTERM);
}

TEST_F(StopTest, RanksThatHaveJoinedStopWithTheOthers) {
  start({"uneven"});
  ASSERT_EQ(::kill(rank_1_when_ready(), SIGTERM), 0);
  const auto result = finish();
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  const std::vector<int> stopped = steps(result);
  EXPECT_EQ(stopped.size(), static_cast<std::size_t>(kRanks)) << result.out << result.err;
}

}  // namespace
}  // namespace hvd::launcher
