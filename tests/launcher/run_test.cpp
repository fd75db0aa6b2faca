// Tests whole runs of hvdrun: the environment of ranks, and exit codes.
#include <csignal>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "directory.hpp"
#include "hvdrun.hpp"
#include "plan/cpus.hpp"
#include "plan/this_host.hpp"

namespace hvd::launcher {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(RunTest, ExactlyTheRanksAskedForEachWithItsPlace) {
  const auto result = run(hvdrun_script(
      4,
      "echo $HVD_RANK/$HVD_SIZE $HVD_LOCAL_RANK/$HVD_LOCAL_SIZE $HVD_CROSS_RANK/$HVD_CROSS_SIZE"
      " $HVD_RESTART_COUNT $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK."));
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(count(result.out, "\n"), 4U);
  for (const std::string r : {"0", "1", "2", "3"}) {
    EXPECT_THAT(result.out, HasSubstr("[" + r + "]<stdout>:" + r + "/4 " + r + "/4 0/1 0 " + r +
                                      "/4 " + r + "/4 0.\n"));
  }
}

TEST(RunTest, TheRanksOfAJobShareItsStoreAndId) {
  const auto result = run(
      hvdrun_script(3, "echo $HVD_JOB_ID $HVD_STORE $MASTER_ADDR:$MASTER_PORT", {"--no-prefix"}));
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  const std::string line = result.out.substr(0, result.out.find('\n') + 1);
  EXPECT_EQ(result.out, line + line + line);
  EXPECT_THAT(line, AllOf(HasSubstr("unix:@"), HasSubstr("127.0.0.1:")));
}

TEST(RunTest, SpellingsOfThisHostAreAgentsEach) {
  const auto result =
      run(hvdrun_script(4, "echo $HVD_LOCAL_RANK/$HVD_LOCAL_SIZE $HVD_CROSS_RANK/$HVD_CROSS_SIZE",
                        {"-H", "localhost:2,127.0.0.1:1,[::1]:2"}));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("[0]<stdout>:0/2 0/3\n"), HasSubstr("[1]<stdout>:1/2 0/1\n"),
                    HasSubstr("[2]<stdout>:0/1 1/3\n"), HasSubstr("[3]<stdout>:0/1 2/3\n")));
}

TEST(RunTest, VariablesReachTheRanks) {
  auto options = hvdrun_script(1, "echo $A $B $C $CUDA_VISIBLE_DEVICES $OMP_NUM_THREADS",
                               {"-x", "A=1", "-x", "B", "-x", "C=x y"});
  options.environment = {
      {"A", "0"}, {"B", "2"}, {"CUDA_VISIBLE_DEVICES", "7"}, {"OMP_NUM_THREADS", "3"}};
  EXPECT_EQ(run(std::move(options)).out, "[0]<stdout>:1 2 x y 7 3\n");
}

TEST(RunTest, TheLaunchFlagAndTheConfigFileReachTheRanks) {
  const auto path =
      std::filesystem::path(testing::TempDir()) / ("job-" + std::to_string(::getpid()) + ".yaml");
  std::ofstream(path) << "num-proc: 2\nx: {A: file, B: file}\nno_prefix: true\n";
  const auto result =
      run(hvdrun({"--config-file", path.string(), "-np", "1", "-x", "B=typed", "--mpi-launch-flag",
                  "env C=flag", "sh", "-c", "echo $HVD_SIZE $A $B $C"}));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(result.out, "1 file typed flag\n");
  std::ofstream(path) << "num-proc: 2\nfrobnicate: 1\n";
  const auto unknown = run(hvdrun({"--config-file", path.string(), "true"}));
  EXPECT_EQ(unknown.exit_code(), 64);
  EXPECT_THAT(unknown.err, HasSubstr("'frobnicate' (line 2)"));
  std::filesystem::remove(path);
}

/// Runs without OMP_NUM_THREADS, bound to `cores` unless that is empty.
test::ProcessResult run_unset(test::ProcessOptions options, const std::string& cores = "") {
  options.environment["OMP_NUM_THREADS"] = std::nullopt;
  if (!cores.empty()) {
    options.arguments.insert(options.arguments.begin(), {"taskset", "-c", cores});
  }
  return run(std::move(options));
}

TEST(ThreadsTest, UsableCoresAreSharedOutAndThatIsSaidOnce) {
  const std::string script = "test $OMP_NUM_THREADS -ge 1 && echo $OMP_NUM_THREADS";
  const auto all = run_unset(hvdrun_script(1, script, {"--no-prefix"}));
  ASSERT_EQ(all.exit_code(), 0) << all.err;
  EXPECT_EQ(all.out, std::to_string(usable_cores()) + "\n");
  const auto one = run_unset(hvdrun_script(1, script, {"--no-prefix"}), "0");
  EXPECT_EQ(one.out, "1\n");
  const auto shared = run_unset(hvdrun_script(3, script, {"-H", "localhost:2,127.0.0.1:1"}), "0");
  EXPECT_EQ(count(shared.out, ">:1\n"), 3U) << shared.out;
  EXPECT_EQ(shared.err, "hvdrun: OMP_NUM_THREADS=1 for each rank, as it was not set\n");
  const auto verbose = run_unset(hvdrun_script(3, "true", {"--verbose"}));
  EXPECT_EQ(count(verbose.err, "OMP_NUM_THREADS="), 1U) << verbose.err;
  const auto again =
      run_unset(hvdrun_script(1, "test $HVD_RESTART_COUNT = 1 || exit 5", {"--max-restarts", "1"}));
  EXPECT_EQ(again.exit_code(), 0);
  EXPECT_EQ(count(again.err, "OMP_NUM_THREADS="), 1U) << again.err;
}

TEST(ThreadsTest, WhatTheUserSetIsLeftAndNotMentioned) {
  const std::string script = "echo $OMP_NUM_THREADS";
  auto inherited = hvdrun_script(1, script, {"--no-prefix"});
  inherited.environment["OMP_NUM_THREADS"] = "7";
  const auto result = run(std::move(inherited));
  EXPECT_EQ(result.out, "7\n");
  EXPECT_EQ(result.err, "");
  const auto option =
      run_unset(hvdrun_script(1, script, {"--no-prefix", "-x", "OMP_NUM_THREADS=5"}));
  EXPECT_EQ(option.out, "5\n");
  EXPECT_EQ(option.err, "");
}

TEST(RunTest, SixtyFourRanksStartAndEnd) {
  test::Lifeline lifeline;
  auto options = hvdrun_script(64, "echo rank $HVD_RANK of $HVD_SIZE");
  options.inherited = {lifeline.fd()};
  const auto result = run(std::move(options));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(count(result.out, " of 64\n"), 64U);
  EXPECT_TRUE(lifeline.all_gone(test::in(kPatience)));
}

TEST(RunTest, TheFirstRankReadsStandardInput) {
  auto options = hvdrun_script(2, "read line; echo got: $line.");
  options.input = "hello\n";
  const auto result = run(std::move(options));
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("[0]<stdout>:got: hello.\n"), HasSubstr("[1]<stdout>:got: .\n")));
}

TEST(RunTest, ClosedStandardDescriptorsDoNoHarm) {
  auto options = hvdrun_script(2, "echo x; exit 3");
  options.close_output = true;
  EXPECT_EQ(run(std::move(options)).exit_code(), 3);
}

// ---- the secret

TEST(SecretTest, IsReadFromTheDescriptorAndTheSameEverywhere) {
  const auto result = run(hvdrun_script(
      2, "head -c 64 /proc/self/fd/$HVD_SECRET_FD | od -An -v -tx1 | tr -d ' \\n'; echo",
      {"--no-prefix"}));
  ASSERT_EQ(result.exit_code(), 0) << result.err;
  constexpr std::size_t kHexDigits = 64;
  ASSERT_EQ(result.out.size(), 2 * (kHexDigits + 1)) << result.out;
  EXPECT_EQ(result.out.substr(0, kHexDigits), result.out.substr(kHexDigits + 1, kHexDigits));
  EXPECT_NE(result.out.substr(0, kHexDigits), std::string(kHexDigits, '0'));
}

TEST(SecretTest, IsInNoArgumentAndNoEnvironment) {
  // Every rank searches /proc of itself, its agent and hvdrun for the secret, in binary and in hex.
  const std::string script = R"(
    secret=/proc/self/fd/$HVD_SECRET_FD
    hex=$(head -c 32 $secret | od -An -v -tx1 | tr -d ' \n')
    agent=$PPID
    launcher=$(awk '/^PPid:/ {print $2}' /proc/$agent/status)
    for pid in $$ $agent $launcher; do
      for file in cmdline environ; do
        dump=$(od -An -v -tx1 /proc/$pid/$file | tr -d ' \n')
        test -n "$dump" || exit 3
        case $dump in *$hex*) exit 4;; esac
        grep -qa "$hex" /proc/$pid/$file && exit 5
      done
    done
    echo looked)";
  const auto result = run(hvdrun_script(2, script, {"--verbose"}));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(count(result.out, "looked"), 2U);
}

// ---- exit codes

TEST(ExitCodeTest, OfTheRankThatFailed) {
  const auto result = run(hvdrun_script(3, "test $HVD_RANK != 1 || exit 7; exec sleep 60"));
  EXPECT_EQ(result.exit_code(), 7);
  EXPECT_THAT(result.err, AllOf(HasSubstr("hvdrun: rank 1 on localhost (local 1, pid "),
                                HasSubstr(") exited 7 after "),
                                HasSubstr("hvdrun: ranks 0, 2 were ended by hvdrun\n")));
}

TEST(ExitCodeTest, OfTheSignalThatKilledARank) {
  const auto result = run(hvdrun_script(2, "test $HVD_RANK != 1 || kill -9 $$; exec sleep 60"));
  EXPECT_EQ(result.exit_code(), 137);
  EXPECT_THAT(result.err, HasSubstr(") was killed by signal 9 (SIGKILL) after "));
}

TEST(ExitCodeTest, TheLastLinesOfTheCulpritAreShown) {
  const auto result = run(hvdrun_script(
      2, "test $HVD_RANK = 0 && exec sleep 60; seq 100; echo last words >&2; exit 1"));
  EXPECT_EQ(result.exit_code(), 1);
  const auto report = result.err.substr(result.err.find("hvdrun: the last lines of rank 1:"));
  EXPECT_THAT(report, AllOf(HasSubstr("  [1]<stdout>:100\n"), HasSubstr("last words"),
                            Not(HasSubstr(":79\n"))));
}

TEST(ExitCodeTest, AKilledRankIsBlamedBeforeThoseItTookAlong) {
  // Rank 0 kills rank 1 and fails itself at the same moment.
  const auto result = run(hvdrun_script(
      2,
      "test $HVD_RANK = 1 && exec sleep 60;"
      "while test $(wc -w < /proc/$PPID/task/$PPID/children) -lt 2; do :; done;"
      "for pid in $(cat /proc/$PPID/task/$PPID/children); do test $pid = $$ || kill -9 $pid; done;"
      "exit 1"));
  EXPECT_EQ(result.exit_code(), 137) << result.err;
  EXPECT_THAT(result.err,
              AllOf(StartsWith("hvdrun: rank 1 on localhost"), HasSubstr("hvdrun: then rank 0")));
}

TEST(ExitCodeTest, RanksThatEndEarlyAreWaitedFor) {
  const auto result =
      run(hvdrun_script(2, "test $HVD_RANK = 0 && exit 0; sleep 0.3; echo still here"));
  EXPECT_EQ(result.exit_code(), 0);
  EXPECT_EQ(result.out, "[1]<stdout>:still here\n");
}

/// TRAIN for programs that end without a shutdown. OpenSSL's memory is then not freed, and a leak
/// checker must not change the exit status.
const std::vector<std::string> kLeakyTrain{"env", "ASAN_OPTIONS=detect_leaks=0", TRAIN};

TEST(ExitCodeTest, ARankThatDesertsTheOthersIs70) {
  // Rank 1 joins and then exits 0 without shutdown; the others report the error that this causes.
  std::vector<std::string> command{"-np", "3"};
  command.insert(command.end(), kLeakyTrain.begin(), kLeakyTrain.end());
  command.emplace_back("desert");
  const auto result = run(hvdrun(command));
  EXPECT_EQ(result.exit_code(), 70) << result.err;
  const auto begin = result.err.find("hvdrun: ");
  ASSERT_NE(begin, std::string::npos) << result.err;
  const std::string report = result.err.substr(begin);
  EXPECT_THAT(report, AllOf(StartsWith("hvdrun: rank 1 on localhost (local 1, pid "),
                            HasSubstr(") exited 0 without hvd::shutdown() after "),
                            HasSubstr("hvdrun: then rank "), HasSubstr(") exited 3 after "),
                            HasSubstr("<stderr>:peer lost: rank 1 on ")));
}

TEST(ExitCodeTest, OfARankThatLeavesThoughItsProcessIsOverAfterThoseThatLoseIt) {
  const Directory directory;
  directory.make_fifo("held");
  std::vector<std::string> command{"-np", "2"};
  command.insert(command.end(), kLeakyTrain.begin(), kLeakyTrain.end());
  command.insert(command.end(), {"leave", (directory.path() / "held").string()});
  const auto result = run(hvdrun(command));
  EXPECT_EQ(result.exit_code(), 3) << result.err;
  EXPECT_THAT(result.err, AllOf(StartsWith("hvdrun: rank 1 on localhost (local 1, pid "),
                                HasSubstr(") exited 3 after "),
                                HasSubstr("hvdrun: then rank 0 on localhost (local 0, pid "),
                                HasSubstr(") was killed by signal 6 (SIGABRT) after ")));
}

TEST(ExitCodeTest, OfALibTorchTrainerThatExits) {
  if (!std::filesystem::exists(TORCH_TRAIN)) GTEST_SKIP() << "needs LibTorch";
  const auto result = run(hvdrun({"-np", "2", TORCH_TRAIN, "leave"}));
  EXPECT_EQ(result.exit_code(), 3) << result.err;
  const auto begin = result.err.find("hvdrun: ");
  ASSERT_NE(begin, std::string::npos) << result.err;
  EXPECT_THAT(result.err.substr(begin), AllOf(StartsWith("hvdrun: rank 1 on localhost (local 1, "),
                                              HasSubstr("hvdrun: then rank 0 on localhost ")));
}

TEST(ExitCodeTest, ADeserterWhomNobodyMissesIsNoFailure) {
  const Directory directory;
  directory.make_fifo("held");
  std::vector<std::string> command{"-np", "2"};
  command.insert(command.end(), kLeakyTrain.begin(), kLeakyTrain.end());
  command.insert(command.end(), {"forget", (directory.path() / "held").string()});
  const auto result = run(hvdrun(command));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("hvdrun:")));
}

TEST(ExitCodeTest, ProgramsThatCannotRun) {
  const auto missing = run(hvdrun({"-np", "2", "./no/such/program"}));
  EXPECT_EQ(missing.exit_code(), 127);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("'./no/such/program'"), HasSubstr("not found")));
  EXPECT_EQ(run(hvdrun({"-np", "2", "no-such-program-on-the-path"})).exit_code(), 127);
  const auto directory = run(hvdrun({"-np", "2", "/tmp"}));
  EXPECT_EQ(directory.exit_code(), 126);
  EXPECT_EQ(count(directory.err, "\n"), 1U);
  EXPECT_EQ(run(hvdrun({"-np", "2", "/etc/passwd"})).exit_code(), 126);
}

TEST(ExitCodeTest, AScriptWithoutItsInterpreter) {
  const auto path =
      std::filesystem::path(testing::TempDir()) / ("script-" + std::to_string(::getpid()));
  std::ofstream(path) << "#!/no/such/interpreter\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  const auto result = run(hvdrun({"-np", "2", path.string()}));
  EXPECT_EQ(result.exit_code(), 127);
  EXPECT_THAT(result.err, HasSubstr("interpreter"));
  std::filesystem::remove(path);
}

TEST(ExitCodeTest, TheProgramsPathIsTheRanksOwn) {
  EXPECT_EQ(run(hvdrun({"-np", "1", "-x", "PATH=/nowhere", "sh", "-c", "true"})).exit_code(), 127);
  EXPECT_EQ(run(hvdrun({"-np", "1", "-x", "PATH=/bin", "sh", "-c", "true"})).exit_code(), 0);
}

TEST(ExitCodeTest, UsageIsOneLineAnd64) {
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"-np", "2"},
                                             {"-np", "0", "true"},
                                             {"--frobnicate"},
                                             {"-np", "3", "-H", "localhost:2", "true"},
                                             {"-np", "1", "-H", "-a", "true"}}) {
    const auto result = run(hvdrun(arguments));
    EXPECT_EQ(result.exit_code(), 64);
    EXPECT_THAT(result.err, AllOf(StartsWith("hvdrun: "), EndsWith("\n")));
    EXPECT_EQ(count(result.err, "\n"), 1U) << result.err;
    EXPECT_EQ(result.out, "");
  }
  EXPECT_THAT(run(hvdrun({"-np", "3", "-H", "localhost:2", "true"})).err,
              AllOf(HasSubstr("3"), HasSubstr("2")));
}

TEST(ExitCodeTest, AHostThatCannotBeReachedIs69) {
  const auto result = run(hvdrun(
      {"--launcher", "ssh", "-np", "2", "-H", "localhost:1,no-such-host.invalid:1", "true"}));
  EXPECT_EQ(result.exit_code(), 69);
  EXPECT_THAT(result.err, HasSubstr("hvdrun: cannot reach no-such-host.invalid: "));
}

TEST(ExitCodeTest, TooFewDescriptorsIs71AndLeavesNothing) {
  test::Lifeline lifeline;
  test::ProcessOptions options;
  options.arguments = {"sh", "-c", "ulimit -n 32; exec " HVDRUN " -np 32 sleep 600"};
  options.environment = {{"OMP_NUM_THREADS", "1"}};
  options.inherited = {lifeline.fd()};
  const auto result = run(std::move(options));
  EXPECT_EQ(result.exit_code(), 71);
  EXPECT_EQ(count(result.err, "\n"), 1U) << result.err;
  EXPECT_TRUE(lifeline.all_gone(test::in(kPatience)));
}

TEST(DescriptorLimitTest, HvdrunRaisesItsOwnAndRanksKeepTheUsers) {
  const Directory directory;
  test::ProcessOptions options;
  // Each stream of each rank has a file, so hvdrun alone has 80 descriptors.
  options.arguments = {"sh", "-c",
                       "ulimit -Sn 64; exec " HVDRUN " -np 40 --output-filename " +
                           directory.path().string() + " sh -c 'ulimit -Sn'"};
  options.environment = {{"OMP_NUM_THREADS", "1"}};
  const auto result = run(std::move(options));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_EQ(count(result.out, "]<stdout>:64\n"), 40U) << result.out;
}

// ---- restarts

TEST(RestartTest, GoesOnUntilItWorks) {
  const auto result = run(hvdrun_script(
      2, "echo try $HVD_RESTART_COUNT; test $HVD_RESTART_COUNT = 2 || test $HVD_RANK = 0 || exit 5",
      {"--max-restarts", "3"}));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  for (const char* line : {"[1]<stdout>:try 0\n", "[1]<stdout>:try 1\n", "[0]<stdout>:try 2\n"}) {
    EXPECT_THAT(result.out, HasSubstr(line));
  }
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("hvdrun: restart 1 of 3\n"), HasSubstr("hvdrun: restart 2 of 3\n"),
                    Not(HasSubstr("restart 3 of 3"))));
}

TEST(RestartTest, EndsWithTheLastCodeAndRestartsNothingButLostRanks) {
  const auto result =
      run(hvdrun_script(2, "exit $((5 + HVD_RESTART_COUNT))", {"--max-restarts", "1"}));
  EXPECT_EQ(result.exit_code(), 6);
  const auto missing = run(hvdrun({"-np", "1", "--max-restarts", "9", "./no/such/program"}));
  EXPECT_EQ(missing.exit_code(), 127);
  EXPECT_THAT(missing.err, Not(HasSubstr("restart")));
}

/// Each try is over within the timeout, and all of them together take far longer.
TEST(RestartTest, TimeoutOverAllTries) {
  const auto result =
      run(hvdrun_script(1, "sleep 0.1; exit 7", {"--max-restarts", "1000", "--timeout", "0.5"}));
  EXPECT_EQ(result.exit_code(), 124) << result.err;
  EXPECT_THAT(result.err, HasSubstr("hvdrun: the job was not over after 0.5 s\n"));
}

// ---- host strings

TEST(HostileHostsTest, NoneOfTwoHundredExecutesAnything) {
  const auto place =
      std::filesystem::path(testing::TempDir()) / ("hostile-" + std::to_string(::getpid()));
  std::filesystem::create_directory(place);
  // This ssh records a call with anything but a host after the dashes.
  std::ofstream(place / "ssh") << "#!/bin/sh\necho called >> called\nexit 255\n";
  std::filesystem::permissions(place / "ssh", std::filesystem::perms::owner_all);
  std::vector<std::string> hosts;
  for (const std::string attack : {"$(touch pwned)",
                                   "`touch pwned`",
                                   ";touch pwned;",
                                   "|touch pwned",
                                   "&touch pwned&",
                                   ">pwned",
                                   "-oProxyCommand=touch pwned",
                                   "-F/dev/null",
                                   "--",
                                   "\ntouch pwned\n",
                                   "a\rb",
                                   "'",
                                   "\"",
                                   "\\",
                                   "../a",
                                   "/etc/passwd",
                                   "~",
                                   "*",
                                   "?",
                                   "{a}",
                                   "!x",
                                   "%h",
                                   "\x1b[2J",
                                   "\xff",
                                   " "}) {
    for (const std::string form : {"#", "a#", "#a", "a@#", "#@a", "a,#", "a:#", "[::1]#"}) {
      std::string host = form;
      hosts.push_back(host.replace(host.find('#'), 1, attack));
    }
  }
  ASSERT_GE(hosts.size(), 200U);
  for (const std::string& host : hosts) {
    auto options = hvdrun({"--launcher", "ssh", "-np", "1", "-H", host, "true"});
    options.directory = place.string();
    options.environment["PATH"] = place.string() + ":/usr/bin:/bin";
    const auto result = run(std::move(options));
    EXPECT_EQ(result.exit_code(), 64) << host << result.err;
    EXPECT_EQ(count(result.err, "\n"), 1U) << result.err;
  }
  EXPECT_FALSE(std::filesystem::exists(place / "pwned"));
  EXPECT_FALSE(std::filesystem::exists(place / "called"));
  std::filesystem::remove_all(place);
}

TEST(ExitCodeTest, TheDeadlineOfTheJobIs124) {
  const auto result = run(hvdrun({"-np", "2", "--timeout", "0.2", "sleep", "60"}));
  EXPECT_EQ(result.exit_code(), 124);
  EXPECT_THAT(result.err, HasSubstr("0.2 s"));
}

// ---- information

TEST(InformationTest, IsPrintedWithoutStartingAnything) {
  const auto dry = run(hvdrun_script(2, "echo started", {"--dry-run"}));
  EXPECT_EQ(dry.exit_code(), 0);
  EXPECT_EQ(count(dry.out, "\n"), 2U);
  EXPECT_THAT(dry.out, AllOf(HasSubstr("HVD_RANK=1"), HasSubstr("sh -c 'echo started'")));

  const auto build = run(hvdrun({"--check-build"}));
  EXPECT_EQ(build.exit_code(), 0) << build.err;
  EXPECT_THAT(build.out, AllOf(HasSubstr("Available Tensor Operations:"), HasSubstr("[X] native"),
                               HasSubstr("This machine, "), HasSubstr("usable core"),
                               HasSubstr("Launchers found:"), HasSubstr("Network interfaces")));

  EXPECT_THAT(run(hvdrun({"--version"})).out, StartsWith("hvdrun "));
  EXPECT_THAT(run(hvdrun({"--help"})).out, HasSubstr("Usage: hvdrun -np N"));
}

}  // namespace
}  // namespace hvd::launcher
