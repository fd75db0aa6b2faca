// Kills and stops ranks in the middle of training, with a frozen schedule and while negotiating.
// The survivors must blame them in time, and nothing may be left. The test's results contain the
// times.
#include <algorithm>
#include <csignal>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hvd/core/error.hpp>

#include "hvdrun.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr seconds kPromise{10};  // 250 ms and 2 s on an idle machine

/// The last output of a rank of frozen_loop.cpp.
struct Verdict {
  int code = -1;
  int rank = -1;
  Clock::time_point at;
};

/// Returns the rest of the line of rank `rank` that begins with `word`.
std::optional<std::string> line_of(const std::string& out, int rank, const std::string& word) {
  const std::string prefix = "[" + std::to_string(rank) + "]<stdout>:" + word + " ";
  const std::size_t found = out.find(prefix);
  if (found == std::string::npos) return std::nullopt;
  const std::size_t begin = found + prefix.size();
  return out.substr(begin, out.find('\n', begin) - begin);
}

std::optional<Verdict> verdict_of(const std::string& out, int rank) {
  const auto line = line_of(out, rank, "lost");
  if (!line) return std::nullopt;
  std::istringstream words(*line);
  Verdict verdict;
  std::string word;
  std::int64_t at = 0;
  words >> word >> verdict.code >> word >> verdict.rank >> word >> at;
  EXPECT_FALSE(words.fail()) << *line;
  verdict.at = Clock::time_point(std::chrono::nanoseconds(at));
  return verdict;
}

int milliseconds_of(Clock::duration time) {
  return static_cast<int>(duration_cast<milliseconds>(time).count());
}

/// Parameters: number of ranks, whether they run a frozen schedule, and the victim.
class LostRank : public testing::TestWithParam<std::tuple<int, bool, int>> {
 protected:
  [[nodiscard]] static int ranks() { return std::get<0>(GetParam()); }
  [[nodiscard]] static bool frozen() { return std::get<1>(GetParam()); }
  [[nodiscard]] static int victim() { return std::get<2>(GetParam()); }

  /// Starts the job and returns the victim's process once all ranks are under way.
  [[nodiscard]] pid_t start() {
    auto options = hvdrun({"-np", std::to_string(ranks()), "-x",
                           std::string("HVD_FREEZE_AFTER=") + (frozen() ? "3" : "0"), FROZEN_LOOP});
    options.inherited = {lifeline_.fd()};
    job_.emplace(std::move(options));
    pid_t pid = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
      job_->wait_for_out("ready " + std::to_string(rank) + "\n", test::in(kPatience));
      const auto line = line_of(job_->out(), rank, "pid");
      std::istringstream words(line.value());
      std::string word;
      pid_t own = 0;
      std::uint64_t hits = 0;
      words >> own >> word >> hits;
      EXPECT_EQ(hits > 0, frozen()) << *line;
      if (rank == victim()) pid = own;
    }
    return pid;
  }

  /// Sends the signal, waits for the end and checks the output of all ranks. Returns hvdrun's exit
  /// code.
  [[nodiscard]] int strike(pid_t pid, int signal) {
    EXPECT_GT(pid, 1);
    const Clock::time_point struck = Clock::now();
    EXPECT_EQ(::kill(pid, signal), 0);
    const test::ProcessResult result = job_->wait(test::in(kPromise));
    const Clock::time_point over = Clock::now();
    EXPECT_TRUE(lifeline_.all_gone(test::in(kPromise))) << "a process of the job is left";

    int slowest = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
      const auto verdict = verdict_of(result.out, rank);
      if (rank == victim()) {
        // hvdrun continues stopped processes to end them, so a stopped rank may still learn that
        // the others are lost.
        EXPECT_TRUE(!verdict || signal == SIGSTOP) << result.out;
        continue;
      }
      if (!verdict) {
        ADD_FAILURE() << "rank " << rank << " was told nothing: " << result.out << result.err;
        continue;
      }
      EXPECT_EQ(verdict->code, static_cast<int>(Errc::peer_lost)) << result.out;
      EXPECT_EQ(verdict->rank, victim()) << result.out;
      slowest = std::max(slowest, milliseconds_of(verdict->at - struck));
    }
    RecordProperty("milliseconds_until_the_last_survivor_knew", slowest);
    RecordProperty("milliseconds_until_hvdrun_was_over", milliseconds_of(over - struck));
    std::cout << "survivors knew after " << slowest << " ms, hvdrun was over after "
              << milliseconds_of(over - struck) << " ms\n";
    error_ = result.err;
    return result.exit_code();
  }

  test::Lifeline lifeline_;
  std::optional<test::Process> job_;
  std::string error_;
};

std::string name_of(const testing::TestParamInfo<std::tuple<int, bool, int>>& info) {
  return std::to_string(std::get<0>(info.param)) +
         (std::get<1>(info.param) ? "RanksFrozenLose" : "RanksNegotiatingLose") +
         std::to_string(std::get<2>(info.param));
}
INSTANTIATE_TEST_SUITE_P(OfTwo, LostRank,
                         testing::Combine(testing::Values(2), testing::Bool(),
                                          testing::Range(0, 2)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OfThree, LostRank,
                         testing::Combine(testing::Values(3), testing::Bool(),
                                          testing::Range(0, 3)),
                         name_of);

TEST_P(LostRank, KilledIsNamedByAll) {
  EXPECT_EQ(strike(start(), SIGKILL), 128 + SIGKILL) << error_;
  EXPECT_THAT(error_, HasSubstr("hvdrun: rank " + std::to_string(victim()) + " on localhost"));
  EXPECT_THAT(error_, HasSubstr("was killed by signal 9 (SIGKILL)"));
}

// hvdrun notices the end of a survivor and ends the stopped rank with the others.
TEST_P(LostRank, StoppedIsNamedByAllAndEnded) {
  EXPECT_EQ(strike(start(), SIGSTOP), 3) << error_;
  EXPECT_THAT(error_,
              testing::StartsWith("hvdrun: rank " + std::to_string(victim()) + " on localhost"));
  EXPECT_THAT(error_, HasSubstr(") still runs, but rank "));
}

}  // namespace
}  // namespace hvd::launcher
