// Elastic jobs with an ExactOptimizer have the same bits after each step, whatever the ranks are
// and were.
#include <csignal>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic_job.hpp"

namespace hvd::test {
namespace {

using detail::Change;
using testing::HasSubstr;

/// By number of the step, what workers have said of it. It begins with "step".
using History = std::map<int, std::set<std::string>>;

class ExactTraining : public testing::Test {
 protected:
  /// Starts `count` workers, of which `first` are the first generation.
  void start(const std::vector<std::string>& plan, int count, const std::vector<int>& first) {
    job_.emplace(EXACT_TRAINER, plan);
    job_->start(count);
    std::vector<int> all;
    for (int worker = 0; worker < count; ++worker) all.push_back(worker);
    job_->all_wait(all);
    job_->form(first);
  }
  void expect_killed(int worker) {
    const ProcessResult result = job_->end(worker);
    EXPECT_EQ(result.signal(), SIGKILL) << result.out << result.err;
    remember(result.out);
  }
  void await_training(int worker, int generation) {
    job_->process(worker).wait_for_out("generation " + std::to_string(generation) + " trains",
                                       in(std::chrono::minutes(1)));
  }
  /// Waits until these workers wait, and makes the next generation of them and of others.
  void go_on(const std::vector<int>& workers, const std::vector<int>& next) {
    for (const int worker : workers) static_cast<void>(job_->waits(worker));
    job_->form(next);
  }
  void finish(const std::vector<int>& workers) {
    for (const int worker : workers) {
      const ProcessResult result = job_->end(worker);
      EXPECT_EQ(result.exit_code(), 0) << worker << ": " << result.out << result.err;
      EXPECT_THAT(result.out, HasSubstr("finished"));
      remember(result.out);
    }
  }
  void remember(const std::string& output) {
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("step ", 0) == 0) said_[std::stoi(line.substr(5))].insert(line);
    }
  }
  /// Expects that all workers of all jobs have said the same of each step.
  void expect_same_bits() {
    ASSERT_FALSE(said_.empty());
    EXPECT_EQ(said_.size(), said_.rbegin()->first);
    for (const auto& [step, lines] : said_) {
      ASSERT_EQ(lines.size(), 1U) << testing::PrintToString(lines);
    }
  }

  std::optional<ElasticJob> job_;
  History said_;
};

// Five shards are on 3 ranks (1, 2 and 2), 2 ranks (2 and 3), 4 ranks (1, 1, 1 and 2), and again on
// 3. One rank is killed in the forward pass, and one after its step. The first of the four ranks is
// a newcomer.
TEST_F(ExactTraining, HasTheSameBitsWhateverRanksComeAndGo) {
  start({"until=4", "1@1=forward", "3@3=after_step"}, 5, {0, 1, 2});
  expect_killed(1);
  go_on({0, 2}, {0, 2});
  await_training(0, 2);
  job_->send({0, 2}, Change{});
  job_->all_wait({0, 2});
  job_->form({3, 0, 2, 4});
  expect_killed(3);
  go_on({0, 2, 4}, {0, 2, 4});
  finish({0, 2, 4});
  const std::string steps = "steps=" + std::to_string(said_.rbegin()->first);
  EXPECT_GE(said_.size(), 20U);
  start({steps}, 1, {0});
  finish({0});
  start({steps, "2@1=before_step"}, 3, {0, 1, 2});
  expect_killed(2);
  go_on({0, 1}, {0, 1});
  finish({0, 1});
  expect_same_bits();
}

// All ranks that are left have made the step, and none has ended the iteration.
TEST_F(ExactTraining, AStepThatWouldBeMadeTwiceEndsTheJob) {
  start({"until=2", "metric", "0@1=after_step"}, 2, {0, 1});
  expect_killed(0);
  go_on({1}, {1});
  const ProcessResult result = job_->end(1);
  EXPECT_EQ(result.exit_code(), 4) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("there was no commit()"));
  EXPECT_THAT(result.err, HasSubstr("ExactOptimizer allows no communication"));
}

// Worker 0 is in the forward pass when it is lost, so worker 1 has not made the step.
TEST_F(ExactTraining, CommunicationElsewhereLosesNothing) {
  start({"until=2", "metric", "0@1=forward"}, 2, {0, 1});
  expect_killed(0);
  go_on({1}, {1});
  finish({1});
  expect_same_bits();
}

}  // namespace
}  // namespace hvd::test
