// Tests hvd::spawn in a program that links only hvd::spawn and core.
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/process.hpp>

#include "directory.hpp"

namespace hvd::launcher {
namespace {

using test::Process;
using test::ProcessOptions;
using test::ProcessResult;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

constexpr std::chrono::seconds kPatience{30};

ProcessOptions program(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), SPAWN_PROGRAM);
  ProcessOptions options;
  options.arguments = std::move(arguments);
  return options;
}

ProcessResult run(std::vector<std::string> arguments) {
  return test::run_process(program(std::move(arguments)), test::in(kPatience));
}

TEST(SpawnTest, ResultsComeBackByRank) {
  const auto result = run({"results"});
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(result.out, "0 0.000000\n1 0.500000\n2 1.000000\nsizes 0 100000\nbytes 1\n");
  EXPECT_EQ(result.err, "");
}

TEST(SpawnTest, AThrowEndsTheOthersAndIsToldWithRankTextAndPid) {
  test::Lifeline lifeline;
  auto options = program({"throws"});
  options.inherited = {lifeline.fd()};
  const auto start = Clock::now();
  const auto result = test::run_process(std::move(options), test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 5);
  EXPECT_THAT(
      result.out,
      MatchesRegex("rank 2 code 1 signal 0 text \\[std::runtime_error: no such file\\] "
                   "what rank 2 \\(pid [0-9]+\\) threw std::runtime_error: no such file\n"));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));  // 2 s on an idle machine
  EXPECT_TRUE(lifeline.all_gone(test::in(kPatience)));
}

TEST(SpawnTest, EveryWayToFailIsNamed) {
  EXPECT_THAT(run({"throws_int"}).out, HasSubstr("code 1 signal 0 text [int]"));
  EXPECT_THAT(run({"killed"}).out, AllOf(HasSubstr("rank 2 code -1 signal 9"),
                                         HasSubstr("was killed by signal 9 (SIGKILL)")));
  EXPECT_THAT(run({"exits"}).out, AllOf(HasSubstr("rank 2 code 3"), HasSubstr(") exited 3\n")));
  EXPECT_THAT(run({"exits_zero"}).out, HasSubstr("exited 0 before its function returned"));
}

TEST(SpawnTest, AProcessThatLeavesTheJobIsBlamedThoughItEndsLast) {
  const Directory directory;
  directory.make_fifo("held");
  const auto result = run({"leaves", (directory.path() / "held").string()});
  EXPECT_THAT(result.out, AllOf(HasSubstr("rank 1 code 3"), HasSubstr(") exited 3\n")));
}

TEST(SpawnTest, ATimeoutEndsAll) {
  const auto result = run({"sleeps"});
  EXPECT_EQ(result.exit_code(), 6);
  EXPECT_EQ(result.out, "timeout hvd::spawn: the processes were not over after 0.3 s\n");
}

TEST(SpawnTest, SeveralCallsAreToldApartAndEarlierOnesAreReplayed) {
  const auto result = run({"several"});
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(result.out, "0:22:std::logic_error: planned 1:22:std::logic_error: planned\n");
}

TEST(SpawnTest, ACallInsideTheFunctionHasProcessesOfItsOwn) {
  const auto result = run({"nested"});
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(result.out, "0,1, 10,11,\n");
}

TEST(SpawnTest, AHandleWaitsTellsAndEnds) {
  test::Lifeline lifeline;
  auto options = program({"handle"});
  options.inherited = {lifeline.fd()};
  const auto result = test::run_process(std::move(options), test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(result.out,
            "pids 2 joined 3 running hvd::spawn: the processes were terminated polled 2 11\n");
  EXPECT_TRUE(lifeline.all_gone(test::in(kPatience)));
}

TEST(SpawnTest, TheProcessesAreRanksThatMeet) {
  const auto result = run({"rendezvous", "--unknown", "--data_url=s3://x"});
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(result.out, "0=0/2 local 0/2 of 2\n1=1/2 local 1/2 of 2\n");
}

// Starts the program on each of two nodes as ModelArts does.
TEST(SpawnTest, NodeLevelArgumentsMakeOneJobOfTwoPrograms) {
  const std::string url =
      "--init_method=tcp://127.0.0.1:" + std::to_string(20'000 + ::getpid() % 10'000);
  Process second(program({"rendezvous", url, "--rank", "1", "--world_size", "2", "--flag"}));
  Process first(program({"rendezvous", "--other", "1", url, "--rank=0", "--world_size=2"}));
  const auto of_first = first.wait(test::in(kPatience));
  const auto of_second = second.wait(test::in(kPatience));
  EXPECT_EQ(of_first.out, "0=0/4 local 0/2 of 4\n1=1/4 local 1/2 of 4\n") << of_first.err;
  EXPECT_EQ(of_second.out, "2=2/4 local 0/2 of 4\n3=3/4 local 1/2 of 4\n") << of_second.err;
}

TEST(SpawnTest, AParentThatIsKilledLeavesNoChild) {
  for (const int signal : {SIGKILL, SIGTERM, SIGINT}) {
    test::Lifeline lifeline;
    auto options = program({"orphans"});
    options.inherited = {lifeline.fd()};
    Process parent(std::move(options));
    parent.wait_for_out("child 0\n", test::in(kPatience));
    parent.wait_for_out("child 1\n", test::in(kPatience));
    ::kill(parent.pid(), signal);
    EXPECT_EQ(parent.wait(test::in(kPatience)).signal(), signal);
    EXPECT_TRUE(lifeline.all_gone(test::in(kPatience))) << signal;
  }
}

TEST(SpawnTest, ThreadsThatRunAlreadyDoNotMatter) {
  const auto result = run({"threads"});
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(result.out, "done\n");
}

TEST(SpawnTest, LibTorchMayHaveStartedItsThreads) {
  if (!std::filesystem::exists(TORCH_TRAIN)) GTEST_SKIP() << "needs LibTorch";
  ProcessOptions options;
  options.arguments = {TORCH_TRAIN, "spawn"};
  const auto result = test::run_process(std::move(options), test::in(2 * kPatience));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(result.out, "several threads, gradients 192 192\n");
}

TEST(SpawnTest, OutputIsTakenInLinesWithTheirRanks) {
  const auto result = run({"output"});
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(result.out, "out 01 size whole\nerr 11\nahead no\n");
  EXPECT_EQ(result.err, "");
}

TEST(SpawnTest, AChildThatGoesAstrayIsNamed) {
  const auto result = run({"astray"});
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("the program took another way than in the process that started"),
                    HasSubstr("spawn_program.cpp:"),
                    HasSubstr("exited 0 before it came to its call of hvd::spawn again")));
}

TEST(SpawnTest, NumbersOfProcessesThatMakeNoSenseAreRefused) {
  EXPECT_EQ(run({"invalid"}).out,
            "invalid argument hvd::spawn: 0 processes; expected 1 or more\n"
            "invalid argument hvd::spawn: -1 processes; expected 1 or more\n");
}

}  // namespace
}  // namespace hvd::launcher
