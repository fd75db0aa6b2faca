#include "job/report.hpp"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/exit_codes.hpp"
#include "base/text.hpp"
#include "cli/check_build.hpp"
#include "plan/cpus.hpp"
#include "plan/machine.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

RankLocation place(int rank) { return {.host = "b", .local_rank = rank - 2, .pid = 100 + rank}; }

TEST(ReportTest, SaysWhoHowAndAfterHowLong) {
  EXPECT_EQ(describe({.rank = 2, .status = 7 << 8, .elapsed = milliseconds{3210}}, place(2)),
            "rank 2 on b (local 0, pid 102) exited 7 after 3.2 s");
  EXPECT_EQ(describe({.rank = 3, .status = SIGKILL, .elapsed = milliseconds{40}}, place(3)),
            "rank 3 on b (local 1, pid 103) was killed by signal 9 (SIGKILL) after 0.0 s");
}

TEST(ReportTest, CulpritThenItsLinesThenTheOthers) {
  Outcome outcome;
  outcome.code = 7;
  outcome.culprit = RankEnd{.rank = 2, .status = 7 << 8, .elapsed = milliseconds{100}};
  outcome.others = {{.rank = 3, .status = 1 << 8, .elapsed = milliseconds{200}}};
  outcome.ended = {0, 1, 4};
  Tail tail;
  tail.feed(Stream::err, "oops\n");
  EXPECT_EQ(report(outcome, place, [&](int) { return tail.lines(); }),
            "hvdrun: rank 2 on b (local 0, pid 102) exited 7 after 0.1 s\n"
            "hvdrun: the last lines of rank 2:\n"
            "  [2]<stderr>:oops\n"
            "hvdrun: then rank 3 on b (local 1, pid 103) exited 1 after 0.2 s\n"
            "hvdrun: ranks 0-1, 4 were ended by hvdrun\n");
}

TEST(ReportTest, ARankThatHasNotEndedIsNamedBeforeItsVictim) {
  Outcome outcome;
  outcome.code = 3;
  outcome.culprit = RankEnd{.rank = 3, .status = 3 << 8, .elapsed = milliseconds{200}, .blames = 2};
  outcome.unresponsive = 2;
  EXPECT_EQ(report(outcome, place, [](int) { return std::deque<Tail::Line>{}; }),
            "hvdrun: rank 2 on b (local 0, pid 102) still runs, but rank 3 has given it up\n"
            "hvdrun: rank 3 on b (local 1, pid 103) exited 3 after 0.2 s\n"
            "hvdrun: rank 3 had written nothing\n");
}

TEST(ReportTest, OfADesertersVictimsTheFirstIsQuoted) {
  Outcome outcome;
  outcome.code = kExitInternal;
  outcome.culprit = RankEnd{.rank = 2, .elapsed = milliseconds{100}, .without_shutdown = true};
  outcome.others = {{.rank = 3, .status = 3 << 8, .elapsed = milliseconds{200}}};
  Tail tail;
  tail.feed(Stream::err, "rank 2 was lost\n");
  const auto lines = [&](int rank) { return rank == 3 ? tail.lines() : std::deque<Tail::Line>{}; };
  EXPECT_EQ(report(outcome, place, lines),
            "hvdrun: rank 2 on b (local 0, pid 102) exited 0 without hvd::shutdown() after 0.1 s\n"
            "hvdrun: rank 2 had written nothing\n"
            "hvdrun: then rank 3 on b (local 1, pid 103) exited 3 after 0.2 s\n"
            "hvdrun: the last lines of rank 3:\n"
            "  [3]<stderr>:rank 2 was lost\n");
}

TEST(ReportTest, SuccessSaysNothing) {
  EXPECT_EQ(report({}, place, [](int) { return std::deque<Tail::Line>{}; }), "");
}

TEST(TailTest, KeepsTheLastTwentyLinesOfBothStreams) {
  Tail tail;
  for (int i = 0; i < 30; ++i) tail.feed(Stream::out, "line " + std::to_string(i) + "\n");
  tail.feed(Stream::err, "unfinished");
  const auto lines = tail.lines();
  ASSERT_EQ(lines.size(), Tail::kLines);
  EXPECT_EQ(lines.front().text, "line 11");
  EXPECT_EQ(lines.back().text, "unfinished");
  EXPECT_EQ(lines.back().stream, Stream::err);
}

TEST(TailTest, AProgressBarIsItsLastState) {
  Tail tail;
  tail.feed(Stream::out, "10%\r20");
  tail.feed(Stream::out, "%\r30%\r");
  tail.feed(Stream::out, "\nnext\r\n");
  const auto lines = tail.lines();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].text, "30%");
  EXPECT_EQ(lines[1].text, "next");
}

TEST(TailTest, LinesAreBounded) {
  Tail tail;
  for (int i = 0; i < 100; ++i) tail.feed(Stream::out, std::string(1000, 'x'));
  ASSERT_EQ(tail.lines().size(), 1U);
  EXPECT_EQ(tail.lines()[0].text.size(), Tail::kMaxLine);
}

TEST(TextTest, WhatATerminalInterpretsIsNotQuoted) {
  EXPECT_EQ(in_quotes("a\x1b[31mb\n"), "'a?[31mb?'");
  EXPECT_LT(in_quotes(std::string(5000, 'x')).size(), 200U);
  EXPECT_EQ(split_words("  a  b=c "), (std::vector<std::string>{"a", "b=c"}));
  EXPECT_EQ(rank_ranges(std::vector{0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
}

TEST(CheckBuildTest, TheRecordBecomesATable) {
  const std::string table = build_table(
      R"({"version": "0.1.0", "build_type": "Release", "compiler": "GNU 12", "torch": true,
          "libtorch_version": "2.11.0", "mpi": false, "mpi_library": "", "nccl": true,
          "cuda_version": "13.0",
          "nccl_version": "2.28", "pmix": true, "something_new": [1]})");
  EXPECT_THAT(table, HasSubstr("hvd 0.1.0 (Release, GNU 12)"));
  EXPECT_THAT(table, HasSubstr("[X] PyTorch, as LibTorch 2.11.0"));
  EXPECT_THAT(table, HasSubstr("[ ] MPI\n"));
  EXPECT_THAT(table, HasSubstr("[X] NCCL 2.28"));
  EXPECT_THAT(table, HasSubstr("[X] PMIx"));
  EXPECT_THAT(table, HasSubstr("[X] CUDA 13.0"));
  EXPECT_THAT(build_table(R"({"mpi": true, "mpi_library": "Open MPI 4.1.4"})"),
              HasSubstr("[X] MPI: Open MPI 4.1.4\n"));
}

TEST(CheckBuildTest, TheMachineBecomesATable) {
  MachineFacts facts;
  facts.host = "node7";
  facts.cores = 8;
  facts.memory = std::uint64_t{64} << 30;
  facts.shared_memory = std::uint64_t{64} << 20;
  facts.launchers = {{"ssh", "/usr/bin/ssh"}, {"srun", ""}};
  facts.interfaces = {{"eth0", {"10.0.0.7"}}, {"ib0", {"10.1.0.7", "fd00::7"}}};
  facts.chosen = "ib0";
  const std::string table = machine_table(facts);
  for (const char* line :
       {"This machine, node7:", "8 usable cores, 64.0 GiB of memory, /dev/shm of 64 MiB",
        "[ ] NVIDIA GPU\n", "[X] ssh /usr/bin/ssh\n", "[ ] srun\n", "[ ] eth0 10.0.0.7\n",
        "[X] ib0 10.1.0.7, fd00::7\n"}) {
    EXPECT_THAT(table, HasSubstr(line));
  }
  EXPECT_THAT(machine_table({}), HasSubstr("none but the loopback"));
  EXPECT_THAT(machine_table({}), HasSubstr("no /dev/shm"));
}

TEST(CheckBuildTest, LooksForWhatTheUserWouldRun) {
  const MachineFacts facts = look_at_machine({"PATH=/nowhere"});
  EXPECT_GE(facts.cores, 1);
  EXPECT_GT(facts.memory, 0U);
  for (const auto& tool : facts.launchers) EXPECT_EQ(tool.path, "") << tool.name;
}

TEST(CheckBuildTest, ADamagedRecordIsAnError) {
  for (const char* record : {"", "[]", "{\"torch\": \"yes\"}", "{"}) {
    EXPECT_THROW((void)build_table(record), LaunchError) << record;
  }
}

TEST(ReportTest, ChosenThreadsAreOneLineForAllHosts) {
  EXPECT_EQ(omp_notice({}), "");
  EXPECT_EQ(omp_notice({0, 0}), "");
  EXPECT_EQ(omp_notice({2, 0, 2}), "OMP_NUM_THREADS=2 for each rank, as it was not set");
  EXPECT_EQ(omp_notice({4, 0, 1, 2}),
            "OMP_NUM_THREADS=1 to 4 for each rank, by its host's cores, as it was not set");
}

TEST(ReportTest, AFailureToConnectSuggestsTheNetwork) {
  EXPECT_EQ(network_hint({}), "");
  EXPECT_EQ(network_hint({{Stream::err, "cannot open train.bin"}}), "");
  EXPECT_THAT(network_hint({{Stream::err, "x"}, {Stream::err, "NCCL error: ncclInternalError"}}),
              testing::HasSubstr("--network-interfaces"));
}

}  // namespace
}  // namespace hvd::launcher
