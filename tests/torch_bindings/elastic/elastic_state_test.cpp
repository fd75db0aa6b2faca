// Workers of an elastic job train while ranks come and go. Every example must be used as often as
// there were epochs, all replicas must be the same, and counters must fit to the steps.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../launcher/directory.hpp"
#include "elastic_job.hpp"

namespace hvd::test {
namespace {

using detail::Change;
using detail::Leave;
using testing::HasSubstr;
using Words = std::vector<std::string>;

/// Returns the text between `begin` and the next space or end of the line, or nothing.
std::string word_after(const std::string& text, const std::string& begin) {
  const auto at = text.rfind(begin);
  if (at == std::string::npos) return {};
  const auto from = at + begin.size();
  return text.substr(from, text.find_first_of(" \n", from) - from);
}

class ElasticState : public testing::Test {
 protected:
  void start(Words plan, const std::vector<int>& workers,
             const std::string& program = ELASTIC_TRAINER) {
    replicas_.clear();
    job_.emplace(program, std::move(plan), environment_);
    job_->start(static_cast<int>(workers.size()));
    job_->all_wait(workers);
    job_->form(workers);
  }
  void await_training(int worker, int generation) {
    job_->process(worker).wait_for_out("generation " + std::to_string(generation) + " trains",
                                       in(std::chrono::minutes(1)));
  }
  /// Waits until these workers wait, and makes them the next generation.
  void go_on(const std::vector<int>& workers) {
    for (const int worker : workers) static_cast<void>(job_->waits(worker));
    job_->form(workers);
  }
  /// Expects that the workers end well and with the same state. Returns what the first has said.
  std::string finish(const std::vector<int>& workers) {
    std::map<int, std::string> said;
    for (const int worker : workers) {
      const ProcessResult result = job_->end(worker);
      compare_replicas(result.out);
      EXPECT_EQ(result.exit_code(), 0) << worker << ": " << result.out << result.err;
      EXPECT_THAT(result.out, HasSubstr("finished"));
      said[worker] = result.out;
      EXPECT_EQ(word_after(result.out, "digest "), word_after(said[workers[0]], "digest "));
      const std::string steps = word_after(result.out, "\nsteps ");
      EXPECT_NE(steps, "");
      EXPECT_EQ(steps, word_after(said[workers[0]], "\nsteps "));
      for (const char* counter : {" batches ", " saved ", " text ", " draws "}) {
        EXPECT_EQ(word_after(result.out, counter), steps) << counter << result.out;
      }
    }
    return said[workers[0]];
  }
  /// Does the same, and expects that every example was used once in each epoch, and `once_more`
  /// twice.
  std::string finish_exactly(const std::vector<int>& workers, int once_more = 0) {
    const std::string said = finish(workers);
    const std::string epochs = word_after(said, "epochs ");
    EXPECT_THAT(said, HasSubstr("epochs " + epochs + " uses " + epochs + ".000000 to "));
    const int padding = std::stoi(word_after(said, " and "));
    constexpr int kExamples = 240;
    EXPECT_EQ(std::stod(word_after(said, "more, sum ")),
              kExamples * std::stoi(epochs) + padding + once_more)
        << said;
    return said;
  }

  /// Waits until the worker has killed itself.
  void expect_killed(int worker) {
    const ProcessResult result = job_->end(worker);
    EXPECT_EQ(result.signal(), SIGKILL) << worker << ": " << result.out << result.err;
    compare_replicas(result.out);
  }
  /// Expects that the worker's parameters were those of the others after each step.
  void compare_replicas(const std::string& output) {
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("replica of ", 0) != 0) continue;
      const auto end = line.find(": ");
      const auto [first, is_first] = replicas_.emplace(line.substr(0, end), line.substr(end));
      EXPECT_EQ(line.substr(end), first->second) << line;
    }
  }

  std::map<std::string, std::optional<std::string>> environment_{{"OMP_NUM_THREADS", "1"}};
  std::optional<ElasticJob> job_;
  std::map<std::string, std::string> replicas_;  ///< digests by generation and step
};

TEST_F(ElasticState, WithoutAChangeEveryExampleIsUsedOnce) {
  start({"until=1"}, {0, 1});
  finish_exactly({0, 1});
}

struct Loss {
  int lost;
  std::string place;
  std::string optimizer;
};

class ElasticStateLoss : public ElasticState, public testing::WithParamInterface<Loss> {};

TEST_P(ElasticStateLoss, NoStepIsLostOrDoneTwice) {
  const auto& [lost, place, optimizer] = GetParam();
  Words plan{"until=2", std::to_string(lost) + "@1=" + place, "optimizer=" + optimizer};
  if (optimizer == "own" || optimizer == "backward" || optimizer == "sharded") {
    plan.push_back("commit=3");
  }
  start(plan, {0, 1, 2});
  expect_killed(lost);
  std::vector<int> left{0, 1, 2};
  std::erase(left, lost);
  go_on(left);
  const std::string said = finish_exactly(left);
  // With step_in_backward it depends on whether a step was under way.
  if (optimizer == "own" || optimizer == "sharded") {
    EXPECT_THAT(said, HasSubstr("generation 2 rank 0 of 2 after step 3 "));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Places, ElasticStateLoss,
    testing::Values(Loss{0, "backward", "plain"}, Loss{1, "backward", "plain"},
                    Loss{2, "backward", "wrapped"}, Loss{0, "before_step", "plain"},
                    Loss{1, "before_step", "wrapped"}, Loss{2, "after_step", "plain"},
                    Loss{0, "after_record", "plain"}, Loss{1, "after_record", "wrapped"},
                    Loss{0, "backward", "own"}, Loss{1, "after_record", "own"},
                    Loss{0, "backward", "backward"}, Loss{2, "after_record", "backward"},
                    Loss{0, "backward", "scaled"}, Loss{0, "backward", "sharded"},
                    Loss{1, "after_step", "sharded"}, Loss{2, "after_record", "sharded"},
                    Loss{0, "backward", "mirrored"}, Loss{1, "before_step", "mirrored"},
                    Loss{2, "after_record", "mirrored"}),
    [](const auto& of) {
      return of.param.optimizer + "_" + of.param.place + "_of_" + std::to_string(of.param.lost);
    });

TEST_F(ElasticState, AStepWhoseIterationNobodyHasEndedRemains) {
  start({"until=2", "metric", "2@1=after_step"}, {0, 1, 2});
  expect_killed(2);
  go_on({0, 1});
  constexpr int kBatchOfThreeRanks = 12;
  finish_exactly({0, 1}, kBatchOfThreeRanks);
}

TEST_F(ElasticState, TheOthersBeginWhenRank0IsLostWhileItSendsWhatAllStartWith) {
  start({"until=2", "0@1=send"}, {0, 1, 2});
  EXPECT_EQ(job_->end(0).signal(), SIGKILL);
  go_on({1, 2});
  finish_exactly({1, 2});
}

TEST_F(ElasticState, NewcomersGetTheStateOfTheOthers) {
  start({"until=2"}, {0, 1});
  await_training(0, 1);
  job_->start(2);
  job_->all_wait({2, 3});
  job_->send({0, 1}, Change{});
  job_->all_wait({0, 1});
  job_->form({0, 1, 2, 3});
  finish_exactly({0, 1, 2, 3});
}

TEST_F(ElasticState, TheStateOfAnOptimizerGoesOnToo) {
  start({"until=3", "optimizer=adam", "0@1=backward"}, {0, 1, 2});
  expect_killed(0);
  go_on({1, 2});
  await_training(1, 2);
  job_->start(1);
  job_->all_wait({3});
  job_->send({1, 2}, Change{});
  job_->all_wait({1, 2});
  job_->form({1, 2, 3});
  finish({1, 2, 3});
}

TEST_F(ElasticState, WithACommitNothingIsTakenBackWhenARankJoins) {
  start({"until=2", "optimizer=own"}, {0});
  await_training(0, 1);
  job_->start(1);
  job_->all_wait({1});
  job_->send(0, Change{});
  job_->all_wait({0});
  job_->form({0, 1});
  const std::string said = finish_exactly({0, 1});
  EXPECT_THAT(said, Not(HasSubstr("generation 2 rank 0 of 2 after step 0 ")));
}

class DividedState : public ElasticState, public testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, DividedState, testing::Values("sharded", "mirrored"),
                         [](const auto& of) { return of.param; });

TEST_P(DividedState, NothingIsLostWhenRanksComeAndGo) {
  start({"until=3", "optimizer=" + GetParam(), "0@2=terminate"}, {0, 1});
  await_training(0, 1);
  job_->start(1);
  job_->all_wait({2});
  job_->send({0, 1}, Change{});
  job_->all_wait({0, 1});
  job_->form({0, 1, 2});
  for (const int worker : {1, 2}) {
    EXPECT_FALSE(job_->waits(worker).leaves);
  }
  EXPECT_TRUE(job_->waits(0).leaves);
  job_->send(0, Leave{});
  EXPECT_THAT(job_->end(0).out, HasSubstr("left"));
  job_->form({1, 2});
  const std::string said = finish_exactly({1, 2});
  EXPECT_THAT(said, Not(HasSubstr("generation 2 rank 1 of 3 after step 0 ")));
  if (GetParam() == "sharded") return;
  const std::string steps = word_after(said, "\nsteps ");
  EXPECT_EQ(word_after(said, "second "), steps);
  EXPECT_EQ(word_after(said, "third "), steps);
}

// They leave at the same step and have all that there is of one shard.
TEST_F(ElasticState, ARankAndItsMirrorCanLeaveTogether) {
  start({"until=2", "optimizer=mirrored", "0@1=terminate", "1@1=terminate"}, {0, 1, 2});
  for (const int worker : {0, 1}) {
    EXPECT_TRUE(job_->waits(worker).leaves);
    job_->send(worker, Leave{});
    EXPECT_THAT(job_->end(worker).out, HasSubstr("left"));
  }
  go_on({2});
  finish_exactly({2});
}

TEST_F(ElasticState, ARankAndItsMirrorAreLostTogether) {
  start({"until=2", "optimizer=mirrored", "commit=3", "0@1=backward", "2@1=backward"}, {0, 1, 2});
  expect_killed(0);
  expect_killed(2);
  go_on({1});
  job_->process(1).wait_for_err("goes back to the last commit()", in(std::chrono::minutes(1)));
  const std::string said = finish_exactly({1});
  EXPECT_THAT(said, HasSubstr("generation 2 rank 0 of 1 after step 3 "));
}

TEST_F(ElasticState, RanksThatAreNoNeighboursAreLostTogether) {
  start({"until=2", "optimizer=mirrored", "commit=3", "1@1=backward", "3@1=backward"},
        {0, 1, 2, 3});
  expect_killed(1);
  expect_killed(3);
  go_on({0, 2});
  EXPECT_THAT(finish_exactly({0, 2}), HasSubstr("generation 2 rank 0 of 2 after step 4 "));
}

// The second loss comes before a step of the second generation, and the newcomer of the third dies
// while it gets the state.
TEST_F(ElasticState, MirrorsAreKeptUntilTheNextStep) {
  start({"until=4", "optimizer=mirrored", "at=1", "0@1=backward", "1@2=backward", "4@3=receive"},
        {0, 1, 2, 3});
  expect_killed(0);
  go_on({1, 2, 3});
  expect_killed(1);
  for (const int worker : {2, 3}) static_cast<void>(job_->waits(worker));
  job_->start(1);
  job_->all_wait({4});
  job_->form({4, 2, 3});
  expect_killed(4);
  go_on({2, 3});
  finish_exactly({2, 3});
}

// The calls of step() have about 480 operations; the last kill is after them. In each generation
// another rank is lost, and a newcomer gets the state from those that are left.
TEST_F(ElasticState, WithAMirrorARankIsLostAnywhereInAStep) {
  const auto number = [](const char* name, int otherwise) {  // others are for a search by hand
    const char* const given = std::getenv(name);
    return given == nullptr ? otherwise : std::atoi(given);
  };
  const int losses = number("TEST_LOSSES", 8);
  const int first = number("TEST_FIRST_OPERATION", 1);
  const int last = number("TEST_LAST_OPERATION", 491);
  Words plan{"until=" + std::to_string(losses + 1), "optimizer=mirrored", "at=2"};
  std::vector<int> workers{0, 1, 2};
  std::vector<int> lost;
  for (int loss = 0; loss < losses; ++loss) {
    int& worker = workers[static_cast<std::size_t>(loss % 3)];
    lost.push_back(worker);
    plan.push_back(std::to_string(worker) + "@" + std::to_string(loss + 1) +
                   "=op:" + std::to_string(first + loss * (last - first) / (losses - 1)));
    worker = 3 + loss;
  }
  workers = {0, 1, 2};
  start(plan, workers);
  for (int loss = 0; loss < losses; ++loss) {
    job_->start(1);
    const int worker = lost[static_cast<std::size_t>(loss)];
    expect_killed(worker);
    int& place = workers[static_cast<std::size_t>(loss % 3)];
    place = 3 + loss;
    go_on(workers);
  }
  const std::string said = finish(workers);
  EXPECT_THAT(said, Not(HasSubstr("after step 0 ")));
  RecordProperty("operations", word_after(said, "operations "));
}

// A rank that changed its shards before all have their gradients would have made a step that the
// others cannot make without a rank that is lost then.
TEST_F(ElasticState, WithMirrorsRanksVoteBetweenTheGradientsAndTheStep) {
  const launcher::Directory folder;
  environment_["HVD_TIMELINE"] = folder.path() / "timeline";
  start({"until=1", "optimizer=mirrored"}, {0, 1});
  const std::string said = finish({0, 1});
  std::string order;  // g: a gradient, also for a mirror; d: the vote; v: values of a changed shard
  std::istringstream timeline(folder.read("timeline.generation1.rank0.json"));
  for (std::string line; std::getline(timeline, line);) {
    const auto at = line.find("\"tensor\":\"sharded/0/");
    if (at == std::string::npos || line.find("\"algorithm\"") == std::string::npos) continue;
    for (const std::string name : {"/gradient\"", "/mirror\"", "/decided\"", "/values\""}) {
      if (line.find(name, at) != std::string::npos) order += name[1] == 'm' ? 'g' : name[1];
    }
  }
  const int steps = std::stoi(word_after(said, "\nsteps "));
  EXPECT_EQ(std::count(order.begin(), order.end(), 'd'), steps) << order;
  EXPECT_TRUE(std::regex_match(order, std::regex("(g+dv+)*"))) << order;
}

// Two of three shards are lost at once.
TEST_F(ElasticState, OneRankIsEnoughForAShardedOptimizer) {
  start({"until=2", "optimizer=sharded", "commit=3", "0@1=backward", "2@1=backward"}, {0, 1, 2});
  expect_killed(0);
  expect_killed(2);
  go_on({1});
  EXPECT_THAT(finish_exactly({1}), HasSubstr("generation 2 rank 0 of 1 after step 3 "));
}

// Nothing would average the gradients.
TEST_F(ElasticState, TrainingOutsideOfElasticRunIsAnError) {
  for (const std::string optimizer : {"own", "plain", "wrapped", "sharded"}) {
    start({"until=1", "early", "optimizer=" + optimizer}, {0});
    EXPECT_THAT(finish_exactly({0}), HasSubstr("early in an elastic job there "
                                               "are ranks only while hvd::elastic_run"));
  }
}

// The commit is in the first epoch, which has 20 steps, and the loss in the second.
TEST_F(ElasticState, ACommitOfAnEarlierEpochIsRestored) {
  start({"until=2", "optimizer=own", "commit=15", "at=25", "1@1=backward"}, {0, 1, 2});
  expect_killed(1);
  go_on({0, 2});
  EXPECT_THAT(finish_exactly({0, 2}), HasSubstr("generation 2 rank 0 of 2 after step 15 "));
}

TEST_F(ElasticState, ProgramsCanGoBackThemselves) {
  start({"until=1", "commit=3", "restore"}, {0, 1});
  finish_exactly({0, 1});
}

// A program like those of Horovod, which knows no ends of iterations.
TEST_F(ElasticState, AProgramThatOnlyCommitsGoesBackToItsCommits) {
  start({"until=3", "by_commit", "commit=3", "2@1=backward"}, {0, 1, 2});
  expect_killed(2);
  go_on({0, 1});
  await_training(0, 2);
  job_->start(1);
  job_->all_wait({3});
  job_->send({0, 1}, Change{});
  job_->all_wait({0, 1});
  job_->form({0, 1, 3});
  const std::string said = finish({0, 1, 3});
  EXPECT_THAT(said, HasSubstr("generation 2 rank 0 of 2 after step 3 "));
  EXPECT_THAT(said, Not(HasSubstr("generation 3 rank 0 of 3 after step 3 ")));
  EXPECT_EQ(word_after(said, "taken "), word_after(said, "used "));
}

TEST_F(ElasticState, ARankThatIsAskedToLeaveLosesNothing) {
  start({"until=2", "1@1=terminate"}, {0, 1, 2});
  for (const int worker : {0, 2}) {
    EXPECT_FALSE(job_->waits(worker).leaves);
  }
  EXPECT_TRUE(job_->waits(1).leaves);
  job_->send(1, Leave{});
  EXPECT_THAT(job_->end(1).out, HasSubstr("left"));
  job_->form({0, 2});
  finish_exactly({0, 2});
}

// Worker 3 gets the state of a worker that was there, and dies before it has all of it. Those that
// were there still have it.
TEST_F(ElasticState, AReceiverThatDiesTakesNothingAlong) {
  start({"until=3", "3@2=receive", "0@1=backward"}, {0, 1, 2});
  expect_killed(0);
  for (const int worker : {1, 2}) static_cast<void>(job_->waits(worker));
  job_->start(1);
  job_->all_wait({3});
  job_->form({3, 1, 2});
  expect_killed(3);
  go_on({1, 2});
  finish_exactly({1, 2});
}

// 3, 2, 3 and 4 ranks, of which none divides the 16 examples of a step but the last number.
TEST_F(ElasticState, WithAGlobalBatchTheLossesAreThoseOfOneProcess) {
  start({"until=4", "1@1"}, {0, 1, 2}, GLOBAL_BATCH_TRAINER);
  expect_killed(1);
  go_on({0, 2});
  for (const std::vector<int>& after : {std::vector{0, 2, 3}, std::vector{0, 2, 3, 4}}) {
    const std::vector<int> before(after.begin(), after.end() - 1);
    await_training(0, after.back() - 1);
    job_->start(1);
    job_->all_wait({after.back()});
    job_->send(before, Change{});
    job_->all_wait(before);
    job_->form(after);
  }
  for (const int worker : {0, 2, 3, 4}) {
    const ProcessResult result = job_->end(worker);
    EXPECT_EQ(result.exit_code(), 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("are those of one process"));
    EXPECT_THAT(result.out, HasSubstr("finished"));
  }
}

TEST_F(ElasticState, OneAfterTheOther) {
  start({"until=5", "0@1=before_step", "1@2=backward", "2@3=after_record"}, {0, 1, 2, 3});
  expect_killed(0);
  go_on({1, 2, 3});
  expect_killed(1);
  go_on({2, 3});
  expect_killed(2);
  go_on({3});
  await_training(3, 4);
  job_->start(1);
  job_->all_wait({4});
  job_->send(3, Change{});
  job_->all_wait({3});
  job_->form({4, 3});
  finish_exactly({4, 3});
}

}  // namespace
}  // namespace hvd::test
