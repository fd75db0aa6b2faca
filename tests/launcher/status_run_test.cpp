// Tests `hvdrun status` and --status on real jobs, and on jobs with many ranks of the library.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <functional>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <hvd/core/internal/fd.hpp>

#include "directory.hpp"
#include "hvdrun.hpp"

namespace hvd::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class StatusTest : public testing::Test {
 protected:
  void SetUp() override { directory_.make_fifo("gate"); }

  [[nodiscard]] std::string gate() const { return (directory_.path() / "gate").string(); }
  [[nodiscard]] test::ProcessOptions waiting(std::vector<std::string> options) const {
    options.insert(options.begin(), {"-np", "3"});
    options.insert(options.end(), {WAITING, gate()});
    return hvdrun(std::move(options));
  }
  /// Lets rank 1 continue.
  void open_gate() const { std::ofstream(gate()) << "go\n"; }

  /// Returns the output of `hvdrun status JOB` once it contains all of `parts`, or the last output
  /// at the deadline.
  static std::string status_with(const std::string& job, const std::vector<std::string>& parts) {
    const Deadline deadline = test::in(kPatience);
    for (;;) {
      const auto result = run(hvdrun({"status", job}));
      const auto is_there = [&](const std::string& part) {
        return result.out.find(part) != std::string::npos;
      };
      if (std::all_of(parts.begin(), parts.end(), is_there) || Clock::now() > deadline) {
        return result.out + result.err;
      }
    }
  }

  /// Returns the job's name from the line "hvdrun: this is job hvd-…".
  static std::string job_of(test::Process& job) {
    job.wait_for_err("this is job ", test::in(kPatience));
    job.wait_for_err("\n", test::in(kPatience));
    const std::string& said = job.err();
    const auto begin = said.find("this is job ") + 12;
    return said.substr(begin, said.find('\n', begin) - begin);
  }

  Directory directory_;
};

TEST_F(StatusTest, AnotherShellSeesWhoWaitsForWhom) {
  test::Process job(waiting({"--status", "--status-interval", "0.2"}));
  const std::string id = job_of(job);
  const std::string status = status_with(id, {"ranks 0, 2 wait for rank 1: allreduce 'late' for "});
  EXPECT_THAT(status, AllOf(HasSubstr("job " + id + ", 3 ranks"), HasSubstr("MiB"),
                            HasSubstr("ranks 0, 2 wait for rank 1: allreduce 'late' for "),
                            Not(HasSubstr("gpu"))));
  job.wait_for_err("3 of 3 ranks have joined", test::in(kPatience));
  job.wait_for_err("wait for rank 1", test::in(kPatience));
  open_gate();
  const auto result = job.wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("\x1b")));
  const auto after = run(hvdrun({"status", id}));
  EXPECT_EQ(after.exit_code(), 69);
  EXPECT_THAT(after.err, HasSubstr(id));
}

TEST_F(StatusTest, TheSlowestRankIsNamed) {
  const std::string end = directory_.path() / "end";
  test::Process job(
      hvdrun({"-np", "3", "--status", "--status-interval", "60", TRAIN, "slow", end}));
  const std::string id = job_of(job);
  const std::string slowest = "rank 1 is the slowest: the others wait for it for ";
  EXPECT_THAT(status_with(id, {slowest}), HasSubstr(slowest));
  job.wait_for_err(" is the slowest: the others wait for it for ", test::in(kPatience));
  std::ofstream{end};
  EXPECT_EQ(job.wait(test::in(kPatience)).exit_code(), 0);
}

TEST_F(StatusTest, AStoppedRankIsTheOneThatDoesNotAnswer) {
  auto options = waiting({"--status", "-x", "HVD_PEER_TIMEOUT_MS=60000"});
  test::Process job(std::move(options));
  const std::string id = job_of(job);
  const std::string status = status_with(id, {"allreduce 'late'"});
  // "    2 localhost     123 …"
  const auto line = status.find("\n    2 ");
  ASSERT_NE(line, std::string::npos) << status;
  const pid_t pid = std::stoi(status.substr(status.find_first_of("0123456789", line + 16)));
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  EXPECT_THAT(status_with(id, {"rank 2 has not answered for "}),
              HasSubstr("rank 2 has not answered for "));
  ASSERT_EQ(::kill(pid, SIGCONT), 0);
  open_gate();
  EXPECT_EQ(job.wait(test::in(kPatience)).exit_code(), 0);
}

/// Adds the replacement of NVIDIA's library in this mode.
test::ProcessOptions with_gpus(test::ProcessOptions options, const std::string& mode = "") {
  options.environment["LD_LIBRARY_PATH"] = FAKE_NVML;
  options.environment["HVD_FAKE_NVML"] = mode;
  return options;
}

TEST_F(StatusTest, GpusAreShownWithTheRanksThatUseThem) {
  test::Process job(with_gpus(waiting({"--status"})));
  const std::string status = status_with(job_of(job), {"late", "gpu mem"});
  EXPECT_THAT(status, AllOf(HasSubstr("memory  gpu   gpu mem     steps"),
                            testing::ContainsRegex("\n    1 .* MiB  37%   100 MiB ")));
  open_gate();
  EXPECT_EQ(job.wait(test::in(kPatience)).exit_code(), 0);
}

TEST_F(StatusTest, WhatARankHasStartedUsesItsGpusToo) {
  test::Process job(with_gpus(hvdrun_script(2, "sleep 600 & echo here; wait", {"--status"})));
  const std::string id = job_of(job);
  job.wait_for_out("[0]<stdout>:here", test::in(kPatience));
  job.wait_for_out("[1]<stdout>:here", test::in(kPatience));
  const std::string status = status_with(id, {"gpu mem"});
  EXPECT_THAT(status, testing::ContainsRegex("\n    0 .*  80%   300 MiB .*\n"
                                             "    1 .*  80%   300 MiB "));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(test::in(kPatience)).exit_code(), 128 + SIGTERM);
}

TEST_F(StatusTest, AGpuLibraryThatFailsOrHangsDisturbsNothing) {
  for (const char* mode : {"broken", "hangs"}) {
    test::Process job(with_gpus(waiting({"--status"}), mode));
    const std::string status = status_with(job_of(job), {"wait for rank 1", "MiB"});
    EXPECT_THAT(status, AllOf(HasSubstr("MiB"), HasSubstr("ranks 0, 2 wait for rank 1"),
                              Not(HasSubstr("gpu"))))
        << mode;
    open_gate();
    const auto result = job.wait(test::in(kPatience));
    EXPECT_EQ(result.exit_code(), 0) << mode << result.err;
  }
}

TEST_F(StatusTest, OnATerminalTheLinesStayInPlace) {
  test::ProcessOptions options;
  options.arguments = {"script", "-qefc",
                       HVDRUN " -np 3 --status-interval 0.2 " WAITING " " + gate(), "/dev/null"};
  options.environment = {{"SHELL", "/bin/sh"}, {"TERM", "xterm"}};
  if (::access("/usr/bin/script", X_OK) != 0) GTEST_SKIP() << "needs script (bsdutils)";
  test::Process job(std::move(options));
  job.wait_for_out("\x1b[J", test::in(kPatience));
  job.wait_for_out("steps/s", test::in(kPatience));
  job.wait_for_out("wait for rank 1", test::in(kPatience));
  open_gate();
  const auto result = job.wait(test::in(kPatience));
  EXPECT_EQ(result.exit_code(), 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("[0]<stdout>:joined"));
}

/// The terminal stays stopped, as after Ctrl-S, until the job is over, so the only line that waits
/// is the one that hvdrun wrote first.
TEST_F(StatusTest, NothingIsDrawnWhileTheTerminalIsStopped) {
  const UniqueFd terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  std::array<char, 64> name{};
  if (::grantpt(terminal.get()) != 0 || ::unlockpt(terminal.get()) != 0 ||
      ::ptsname_r(terminal.get(), name.data(), name.size()) != 0) {
    GTEST_SKIP() << "pseudoterminals";
  }
  UniqueFd screen(::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_EQ(::tcflow(screen.get(), TCOOFF), 0);
  auto options = hvdrun_script(1, "echo job $HVD_JOB_ID.; read go < " + gate(),
                               {"--status", "--status-interval", "0.2"});
  const std::vector<std::string> shell = {"sh", "-c", "exec \"$@\" 2> \"$0\"", name.data()};
  options.arguments.insert(options.arguments.begin(), shell.begin(), shell.end());
  test::Process job(std::move(options));
  const std::string words = "<stdout>:job ";
  job.wait_for_out(words, test::in(kPatience));
  job.wait_for_out(".\n", test::in(kPatience));
  const auto begin = job.out().find(words) + words.size();
  const std::string id = job.out().substr(begin, job.out().find('.', begin) - begin);
  // hvdrun waits for 0.4 s for an answer of the rank, so that a table is due when it has answered.
  EXPECT_THAT(status_with(id, {"has not joined the job"}), HasSubstr("has not joined the job"));
  open_gate();
  const Deadline deadline = test::in(kPatience);
  while (run(hvdrun({"status", id})).exit_code() == 0 && Clock::now() < deadline) {
  }
  ASSERT_EQ(::tcflow(screen.get(), TCOON), 0);
  screen.reset();
  EXPECT_EQ(read_some(terminal, 100'000, deadline), "hvdrun: this is job " + id + "\r\n");
  EXPECT_EQ(job.wait(deadline).exit_code(), 0);
}

/// Runs `action` in a process of the user nobody and returns its result.
int as_nobody(const std::function<int()>& action) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setuid(65'534) == 0 ? action() : 99);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WEXITSTATUS(status);
}

sockaddr_un address_of(const std::string& job, socklen_t& size) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "hvd-status-" + std::to_string(::getuid()) + "-" + job;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

TEST_F(StatusTest, OtherUsersAreToldNothing) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  test::Process job(waiting({"--status"}));
  const std::string id = job_of(job);
  socklen_t size = 0;
  const sockaddr_un address = address_of(id, size);
  const int told = as_nobody([&] {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0) return 98;
    char byte = 0;
    return ::read(fd, &byte, 1) == 1 ? 1 : 0;
  });
  EXPECT_EQ(told, 0);
  open_gate();
  EXPECT_EQ(job.wait(test::in(kPatience)).exit_code(), 0);
}

TEST(StatusUsageTest, AnotherUserWhoTookTheNameIs77) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  socklen_t size = 0;
  const std::string id = "taken-" + std::to_string(::getpid());
  const sockaddr_un address = address_of(id, size);
  // Another process holds the socket's name while hvdrun status asks.
  const pid_t squatter = ::fork();
  if (squatter == 0) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool taken = ::setuid(65'534) == 0 &&
                       ::bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                       ::listen(fd, 1) == 0;
    ::raise(SIGSTOP);
    ::_exit(taken ? 0 : 98);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(squatter, &status, WUNTRACED), squatter);  // it listens now
  const auto result = run(hvdrun({"status", id}));
  EXPECT_EQ(result.exit_code(), 77);
  EXPECT_THAT(result.err, HasSubstr("another user"));
  ::kill(squatter, SIGCONT);
  ASSERT_EQ(::waitpid(squatter, &status, 0), squatter);
  EXPECT_EQ(status, 0);
}

TEST(StatusUsageTest, Mistakes) {
  EXPECT_EQ(run(hvdrun({"status", "no-such-job"})).exit_code(), 69);
  EXPECT_EQ(run(hvdrun({"status", "a", "b"})).exit_code(), 64);
  EXPECT_EQ(run(hvdrun({"status", std::string(200, 'x')})).exit_code(), 64);
}

TEST(StatusUsageTest, ProgramsThatAreNotOfTheLibraryAreMeasuredFromOutside) {
  test::Process job(hvdrun_script(2, "echo here; read x || exec sleep 60", {"--status"}));
  job.wait_for_out("here", test::in(kPatience));
  job.wait_for_err("\n", test::in(kPatience));
  const std::string said = job.err();
  const auto begin = said.find("this is job ") + 12;
  const auto result = run(hvdrun({"status", said.substr(begin, said.find('\n', begin) - begin)}));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("MiB"), HasSubstr("has not joined the job")));
  job.signal(SIGKILL);
  (void)job.wait(test::in(kPatience));
}

TEST(ManyRanksTest, SixtyFourRanksOfTheLibraryStartAndEnd) {
  test::Lifeline lifeline;
  auto options = hvdrun({"-np", "64", "-x", "HVD_PLAN=default", "-x", "HVD_PEER_TIMEOUT_MS=20000",
                         "--start-timeout", "60", TRAIN});
  options.inherited = {lifeline.fd()};
  const auto result = test::run_process(std::move(options), test::in(std::chrono::seconds{90}));
  EXPECT_EQ(result.exit_code(), 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rank 63 of 64 on "));
  EXPECT_TRUE(lifeline.all_gone(test::in(kPatience)));
}

}  // namespace
}  // namespace hvd::launcher
