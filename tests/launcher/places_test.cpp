// Starts programs of the library with MPI launchers and horovodrun, also nested.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "hvdrun.hpp"

namespace hvd::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Environment = std::map<std::string, std::optional<std::string>>;

test::ProcessOptions with(std::vector<std::string> arguments, Environment environment = {}) {
  test::ProcessOptions options;
  options.arguments = std::move(arguments);
  options.environment = std::move(environment);
  options.environment["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
  options.environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
  return options;
}

bool there_is(const std::string& program) {
  return run(with({"sh", "-c", "command -v " + program})).exit_code() == 0;
}

void expect_a_job_of_two(const test::ProcessResult& result) {
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 0 of 2 on "), HasSubstr("rank 1 of 2 on "),
                                HasSubstr(" sum 1 ready\n")));
}

class MpirunPlaceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HAS_PMIX) GTEST_SKIP() << "needs PMIx";
    if (!there_is("mpirun.openmpi")) GTEST_SKIP() << "needs Open MPI's mpirun";
  }
  static test::ProcessOptions mpirun(Environment environment) {
    return with({"mpirun.openmpi", "--oversubscribe", "-np", "2", TRAIN}, std::move(environment));
  }
};

TEST_F(MpirunPlaceTest, NothingIsSet) { expect_a_job_of_two(run(mpirun({}))); }

TEST_F(MpirunPlaceTest, InAnAllocationItsRanksSeeItsDaemonsTask) {
  expect_a_job_of_two(run(mpirun({{"SLURM_JOB_ID", "7"},
                                  {"SLURM_STEP_ID", "0"},
                                  {"SLURM_PROCID", "1"},
                                  {"SLURM_STEP_NUM_TASKS", "5"},
                                  {"SLURM_STEP_NUM_NODES", "5"}})));
}

TEST_F(MpirunPlaceTest, HvdrunInsideOfItWins) {
  // Each rank of mpirun runs an hvdrun with a job of its own.
  const auto result = run(with({"mpirun.openmpi", "--oversubscribe", "-np", "1", HVDRUN, "-np", "2",
                                "--launcher", "local", TRAIN}));
  expect_a_job_of_two(result);
}

TEST(HydraPlaceTest, OneHostNeedsNothing) {
  if (!there_is("mpiexec.hydra")) GTEST_SKIP() << "needs MPICH's mpiexec";
  // The shell in between is not a launcher.
  expect_a_job_of_two(run(with({"mpiexec.hydra", "-n", "2", "sh", "-c", TRAIN "; exit $?"})));
}

TEST(HydraPlaceTest, TwoJobsBesideEachOtherDoNotMix) {
  if (!there_is("mpiexec.hydra")) GTEST_SKIP() << "needs MPICH's mpiexec";
  test::Process first(with({"mpiexec.hydra", "-n", "2", TRAIN}));
  test::Process second(with({"mpiexec.hydra", "-n", "2", TRAIN}));
  expect_a_job_of_two(first.wait(test::in(kPatience)));
  expect_a_job_of_two(second.wait(test::in(kPatience)));
}

TEST(HorovodPlaceTest, OneHostNeedsNothing) {
  const auto rank = [](int number) {
    return with({TRAIN}, {{"HOROVOD_RANK", std::to_string(number)},
                          {"HOROVOD_SIZE", "2"},
                          {"HOROVOD_LOCAL_RANK", std::to_string(number)},
                          {"HOROVOD_LOCAL_SIZE", "2"},
                          {"HOROVOD_CROSS_RANK", "0"},
                          {"HOROVOD_CROSS_SIZE", "1"},
                          {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
                          {"HOROVOD_GLOO_RENDEZVOUS_PORT", std::to_string(::getpid() % 60'000)}});
  };
  test::Process first(rank(0));
  const auto second = run(rank(1));
  EXPECT_EQ(second.exit_code(), 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("rank 1 of 2 on "));
  EXPECT_EQ(first.wait(test::in(kPatience)).exit_code(), 0);
}

TEST(HorovodPlaceTest, SeveralHostsAreToldWhatToSet) {
  const auto result = run(with({TRAIN}, {{"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "2"}}));
  EXPECT_EQ(result.exit_code(), 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr("HOROVOD_*"), HasSubstr("HVD_RENDEZVOUS")));
}

TEST(ExplicitPlaceTest, WhatTheProgramPassesComesFirst) {
  const auto result = run(hvdrun({"-np", "2", "--no-prefix", TRAIN, "alone"}));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  const std::string alone = "rank 0 of 1 on ";
  const auto first = result.out.find(alone);
  ASSERT_NE(first, std::string::npos) << result.out;
  EXPECT_NE(result.out.find(alone, first + 1), std::string::npos) << result.out;
  // Variables are not read, so wrong values are no error.
  EXPECT_EQ(run(with({TRAIN}, {{"HVD_RANK", "x"}, {"HVD_SIZE", "2"}})).exit_code(), 3);
  EXPECT_EQ(run(with({TRAIN, "alone"}, {{"HVD_RANK", "x"}, {"HVD_SIZE", "2"}})).exit_code(), 0);
}

TEST(TorchPlaceTest, HvdrunInsideOfAWorkerWins) {
  const auto result = run(with(
      {HVDRUN, "-np", "2", TRAIN},
      {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node-a"}, {"MASTER_PORT", "29500"}}));
  expect_a_job_of_two(result);
}

}  // namespace
}  // namespace hvd::launcher
