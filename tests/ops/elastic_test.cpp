// Real workers of an elastic job come, go, freeze and train on.
#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <unistd.h>

#include "elastic_job.hpp"

namespace hvd::test {
namespace {

using detail::Change;
using detail::Leave;
using detail::Waits;
using testing::HasSubstr;

ElasticJob job_of(std::vector<std::string> plan,
                  std::map<std::string, std::optional<std::string>> environment = {}) {
  return ElasticJob(ELASTIC_PROGRAM, std::move(plan), std::move(environment));
}

std::string rank_in(int generation, int rank, int size) {
  return "generation " + std::to_string(generation) + " rank " + std::to_string(rank) + " of " +
         std::to_string(size) + "\n";
}

/// Waits until all ranks of the worker's generation have taken some steps.
void await_training(ElasticJob& job, int worker, int generation) {
  job.process(worker).wait_for_out("generation " + std::to_string(generation) + " holds",
                                   in(std::chrono::minutes(1)));
}

/// Checks that the process has ended well and that its last words were these.
void expect_finished(ElasticJob& job, int worker, const std::string& last_generation,
                     const std::string& words) {
  const ProcessResult result = job.end(worker);
  EXPECT_EQ(result.exit_code(), 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr(last_generation));
  EXPECT_THAT(result.out, HasSubstr(words));
}

void expect_blame(const Waits& said, std::uint32_t generation, int rank, bool left,
                  bool start_failed = false) {
  EXPECT_EQ(said, (Waits{generation, rank, left, false, start_failed}))
      << said.generation << " " << said.blames << " " << said.blamed_left << said.leaves
      << said.start_failed;
}

TEST(Elastic, OneGenerationOnly) {
  ElasticJob job = job_of({"until=1"});
  job.start(2);
  job.all_wait({0, 1});
  job.form({1, 0});
  expect_finished(job, 0, rank_in(1, 1, 2), "finished after 0 resets and 1 ends");
  expect_finished(job, 1, rank_in(1, 0, 2), "finished after 0 resets and 1 ends");
}

TEST(Elastic, RanksExistOnlyInside) {
  ElasticJob job = job_of({"until=1"});
  job.start(1);
  job.all_wait({0});
  job.form({0});
  const std::string out = job.end(0).out;
  EXPECT_THAT(out, HasSubstr("before not initialized: in an elastic job there are ranks only"));
  EXPECT_THAT(out, HasSubstr("after not initialized: in an elastic job there are ranks only"));
}

class ElasticLoss : public testing::TestWithParam<int> {};

TEST_P(ElasticLoss, TheOthersGoOn) {
  const int lost = GetParam();
  ElasticJob job = job_of({"until=2", std::to_string(lost) + "@1=die"});
  job.start(3);
  job.all_wait({0, 1, 2});
  job.form({0, 1, 2});
  EXPECT_EQ(job.end(lost).signal(), SIGKILL);
  std::vector<int> left{0, 1, 2};
  std::erase(left, lost);
  for (const int worker : left) expect_blame(job.waits(worker), 1, lost, true);
  job.form(left);
  expect_finished(job, left[0], rank_in(2, 0, 2), "finished after 1 resets and 2 ends");
  expect_finished(job, left[1], rank_in(2, 1, 2), "finished after 1 resets and 2 ends");
}

INSTANTIATE_TEST_SUITE_P(Ranks, ElasticLoss, testing::Values(0, 1, 2));

TEST(Elastic, OneIsLeftAlone) {
  ElasticJob job = job_of({"until=2", "0@1=die"});
  job.start(2);
  job.all_wait({0, 1});
  job.form({0, 1});
  expect_blame(job.waits(1), 1, 0, true);
  job.form({1});
  expect_finished(job, 1, rank_in(2, 0, 1), "finished");
}

TEST(Elastic, AFrozenRankIsBlamedAsSilent) {
  ElasticJob job = job_of({"until=2", "0@1=stop"}, {{"HVD_PEER_TIMEOUT_MS", "1000"}});
  job.start(3);
  job.all_wait({0, 1, 2});
  job.form({0, 1, 2});
  for (const int worker : {1, 2}) expect_blame(job.waits(worker), 1, 0, false);
  job.kill(0);
  job.form({1, 2});
  expect_finished(job, 1, rank_in(2, 0, 2), "finished");
  expect_finished(job, 2, rank_in(2, 1, 2), "finished");
}

TEST(Elastic, AFourthJoinsAtAnAgreedStep) {
  ElasticJob job = job_of({"until=2"});
  job.start(3);
  job.all_wait({0, 1, 2});
  job.form({0, 1, 2});
  await_training(job, 0, 1);
  job.start(1);
  job.all_wait({3});
  job.send({0, 1, 2}, Change{});
  job.all_wait({0, 1, 2});
  job.form({0, 1, 2, 3});
  for (const int worker : {0, 1, 2}) {
    expect_finished(job, worker, rank_in(2, worker, 4), "finished after 1 resets and 2 ends");
  }
  expect_finished(job, 3, rank_in(2, 3, 4), "finished after 0 resets and 1 ends");
}

TEST(Elastic, OneVoteIsEnough) {
  ElasticJob job = job_of({"until=2"});
  job.start(2);
  job.all_wait({0, 1});
  job.form({0, 1});
  await_training(job, 0, 1);
  job.send(1, Change{});
  job.all_wait({0, 1});
  job.send(0, Change{});  // comes late, and means nothing any more
  job.form({0, 1});
  expect_finished(job, 0, rank_in(2, 0, 2), "finished");
  expect_finished(job, 1, rank_in(2, 1, 2), "finished");
}

/// Whether the program calls `check_host_updates` or `stop_requested`.
class ElasticLeave : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Calls, ElasticLeave, testing::Values("", "asks_to_stop"));

TEST_P(ElasticLeave, WhoIsAskedToLeaveLeavesAtAnAgreedStep) {
  ElasticJob job = job_of({"until=2", "0@1=terminate", GetParam()});
  job.start(3);
  job.all_wait({0, 1, 2});
  job.form({0, 1, 2});
  EXPECT_EQ(job.waits(0), (Waits{1, -1, false, true}));
  job.all_wait({1, 2});
  job.send(0, Leave{});
  expect_finished(job, 0, rank_in(1, 0, 3), "left after 0 resets and 1 ends");
  job.form({1, 2});
  expect_finished(job, 1, rank_in(2, 0, 2), "finished");
  expect_finished(job, 2, rank_in(2, 1, 2), "finished");
}

TEST(Elastic, WhoIsAskedToLeaveWhileItWaitsSaysSo) {
  ElasticJob job = job_of({"until=2"});
  job.start(1);
  job.all_wait({0});
  job.form({0});
  await_training(job, 0, 1);
  job.send(0, Change{});
  EXPECT_EQ(job.waits(0), (Waits{.generation = 1}));
  job.process(0).signal(SIGTERM);
  EXPECT_EQ(job.waits(0), (Waits{1, -1, false, true}));
  job.send(0, Leave{});
  expect_finished(job, 0, rank_in(1, 0, 1), "left");
}

TEST(Elastic, ASecondLossDuringRecovery) {
  ElasticJob job = job_of({"until=3", "0@1=die", "2@2=die_in_synchronize"});
  job.start(4);
  job.all_wait({0, 1, 2, 3});
  job.form({0, 1, 2, 3});
  for (const int worker : {1, 2, 3}) expect_blame(job.waits(worker), 1, 0, true);
  job.form({1, 2, 3});
  for (const int worker : {1, 3}) expect_blame(job.waits(worker), 2, 1, true, true);
  job.form({1, 3});
  // The function has not run in generation 2, but a generation has ended.
  expect_finished(job, 1, rank_in(3, 0, 2), "finished after 2 resets and 3 ends");
  expect_finished(job, 3, rank_in(3, 1, 2), "finished after 2 resets and 3 ends");
}

TEST(Elastic, AStartInVainIsGivenUpWhenHvdrunSaysSo) {
  ElasticJob job = job_of({"until=2"}, {{"HVD_START_TIMEOUT", "600"}});
  job.start(3);
  job.all_wait({0, 1, 2});
  job.process(2).signal(SIGSTOP);
  job.form({0, 1, 2});  // its rank 2 never comes
  job.kill(2);
  job.send({0, 1}, Change{});
  for (const int worker : {0, 1}) {
    EXPECT_EQ(job.waits(worker), (Waits{.generation = 1, .start_failed = true}));
  }
  job.form({0, 1});
  expect_finished(job, 0, rank_in(2, 0, 2), "finished after 0 resets and 1 ends");
  expect_finished(job, 1, rank_in(2, 1, 2), "finished after 0 resets and 1 ends");
}

TEST(Elastic, AnotherExceptionEndsTheProcessAndTheOthersGoOn) {
  ElasticJob job = job_of({"until=2", "1@1=throw"});
  job.start(3);
  job.all_wait({0, 1, 2});
  job.form({0, 1, 2});
  const ProcessResult result = job.end(1);
  EXPECT_EQ(result.exit_code(), 4);
  EXPECT_THAT(result.out, HasSubstr("threw planned"));
  for (const int worker : {0, 2}) expect_blame(job.waits(worker), 1, 1, true);
  job.form({0, 2});
  expect_finished(job, 0, rank_in(2, 0, 2), "finished");
  expect_finished(job, 2, rank_in(2, 1, 2), "finished");
}

TEST(Elastic, ALackOfMemoryEndsTheProcessAndTheOthersGoOn) {
  if (kSanitized) GTEST_SKIP() << "sanitizers end a process that lacks memory";
  ElasticJob job = job_of({"until=2", "1@1=lack_memory"});
  job.start(3);
  job.all_wait({0, 1, 2});
  job.form({0, 1, 2});
  const ProcessResult result = job.end(1);
  EXPECT_EQ(result.exit_code(), 4);
  EXPECT_THAT(result.out, HasSubstr("out of memory"));
  for (const int worker : {0, 2}) expect_blame(job.waits(worker), 1, 1, true);
  job.form({0, 2});
  expect_finished(job, 0, rank_in(2, 0, 2), "finished");
  expect_finished(job, 2, rank_in(2, 1, 2), "finished");
}

TEST(Elastic, ALackOfMemoryOnAllRanksEndsThemAll) {
  if (kSanitized) GTEST_SKIP() << "sanitizers end a process that lacks memory";
  ElasticJob job = job_of({"until=2", "0@1=lack_memory", "1@1=lack_memory"});
  job.start(2);
  job.all_wait({0, 1});
  job.form({0, 1});
  for (const int worker : {0, 1}) {
    const ProcessResult result = job.end(worker);
    EXPECT_EQ(result.exit_code(), 4);
    EXPECT_THAT(result.out, HasSubstr("resource: rank " + std::to_string(worker)));
  }
}

TEST(Elastic, WhoReturnsFirstGoesOnWhenAnotherIsLostBeforeItsEnd) {
  ElasticJob job = job_of({"until=2", "0@1=return_early", "1@1=return_early", "2@1=die"});
  job.start(3);
  job.all_wait({0, 1, 2});
  job.form({0, 1, 2});
  for (const int worker : {0, 1}) expect_blame(job.waits(worker), 1, 2, true);
  job.form({0, 1});
  expect_finished(job, 0, rank_in(2, 0, 2), "finished after 1 resets and 2 ends");
  expect_finished(job, 1, rank_in(2, 1, 2), "finished after 1 resets and 2 ends");
}

TEST(Elastic, WithoutHvdrunAWaitEnds) {
  ElasticJob job = job_of({"until=1"});
  job.start(1);
  job.all_wait({0});
  job.hang_up(0);
  const ProcessResult result = job.end(0);
  EXPECT_EQ(result.exit_code(), 4);
  EXPECT_THAT(result.out, HasSubstr("threw hvdrun has ended"));
}

TEST(Elastic, NothingLeaksOverTwentyGenerations) {
  constexpr int kGenerations = 22;
  ElasticJob job = job_of({"until=" + std::to_string(kGenerations)});
  job.start(3);
  job.all_wait({0, 1, 2});
  std::vector<int> members{0, 1, 2};
  std::vector<std::string> held;
  for (int generation = 1; generation < kGenerations; ++generation) {
    job.form(members);
    await_training(job, 1, generation);
    if (generation % 2 == 1) {
      job.send(members, Change{});
      job.all_wait(members);
      continue;
    }
    const int lost = generation == 2 ? 0 : members.back();  // later ones are newcomers
    job.kill(lost);
    std::erase(members, lost);
    for (const int worker : members) static_cast<void>(job.waits(worker));
    job.start(1);
    members.push_back(generation / 2 + 2);
    job.all_wait({members.back()});
  }
  job.form(members);
  std::string out = job.end(1).out;
  EXPECT_THAT(out, HasSubstr(rank_in(kGenerations, 0, 3)));
  for (std::size_t at = 0; (at = out.find(" holds ", at)) != std::string::npos; ++at) {
    held.push_back(out.substr(at, out.find('\n', at) - at));
  }
  // From generation 3 on, it is rank 0.
  ASSERT_EQ(held.size(), static_cast<std::size_t>(kGenerations)) << out;
  EXPECT_EQ(held[2], held.back()) << out;
}

ProcessResult run_alone(std::map<std::string, std::optional<std::string>> environment) {
  ProcessOptions options;
  options.arguments = {ELASTIC_PROGRAM, "until=9"};
  options.environment = std::move(environment);
  return run_process(std::move(options), in(std::chrono::minutes(1)));
}

TEST(Elastic, AJobThatIsNotElasticRunsOnce) {
  const ProcessResult result = run_alone({});
  EXPECT_EQ(result.exit_code(), 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("generation 0 rank 0 of 1\n"));
  EXPECT_THAT(result.out, HasSubstr("finished after 0 resets and 0 ends"));
}

TEST(Elastic, AnotherFileInPlaceOfTheSocketIsRefused) {
  const ProcessResult result = run_alone({{"HVD_ELASTIC_FD", "0"}});
  EXPECT_EQ(result.exit_code(), 4);
  EXPECT_THAT(result.out, HasSubstr("threw HVD_ELASTIC_FD is '0': expected hvdrun's socket"));
}

}  // namespace
}  // namespace hvd::test
