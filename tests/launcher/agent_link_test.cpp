// Tests the command that starts an agent on another host, its heartbeats, and the consequences of
// its loss.
#include "transport/agent_link.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/exit_codes.hpp"
#include "supervise/descendants.hpp"
#include "transport/agent_command.hpp"
#include "transport/agent_loss.hpp"
#include "transport/heartbeat.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::HasSubstr;

TEST(SshCommandTest, TheHostComesAfterTheDashes) {
  const auto words =
      ssh_command({"b", 2, "me"}, "/opt/my hvd/bin/hvdrun",
                  {.port = 2222, .identity_file = "-key", .connect_timeout = milliseconds{1}});
  EXPECT_EQ(words.front(), "ssh");
  const auto dashes = std::find(words.begin(), words.end(), "--");
  EXPECT_EQ(std::vector<std::string>(dashes, words.end()),
            (std::vector<std::string>{"--", "b", "exec '/opt/my hvd/bin/hvdrun' --remote-agent"}));
  EXPECT_THAT(words, Contains("BatchMode=yes"));
  EXPECT_THAT(words, Contains("ConnectTimeout=1"));
  for (const char* name : {"-p", "2222", "-i", "-key", "-l", "me"})
    EXPECT_THAT(words, Contains(name));
  for (const std::string& word : words) EXPECT_THAT(word, testing::Not(HasSubstr("StrictHostKey")));
}

TEST(SshCommandTest, APathThatShellsReadDifferentlyIsRefused) {
  for (const char* path : {"/it's/hvdrun", "/a\nb", "/wow!/hvdrun", "/back\\slash"}) {
    EXPECT_THROW((void)ssh_command({"b", 1}, path, {}), LaunchError) << path;
  }
}

TEST(SilenceTest, ComesAfterTheLimitAndNotBefore) {
  const Clock::time_point start{};
  Silence silence(start);
  constexpr milliseconds kEvery{200};
  constexpr milliseconds kLimit{1000};
  int ticks = 1;
  while (!silence.too_long(start + ticks * kEvery, kEvery, kLimit)) ++ticks;
  EXPECT_EQ(ticks, 6);
}

TEST(SilenceTest, EndsWithASound) {
  const Clock::time_point start{};
  Silence silence(start);
  for (int tick = 1; tick < 100; ++tick) {
    if (tick % 4 == 0) silence.heard(start + milliseconds{200 * tick});
    EXPECT_FALSE(
        silence.too_long(start + milliseconds{200 * tick}, milliseconds{200}, milliseconds{1000}));
  }
}

TEST(SilenceTest, OwnLatenessIsNotHeldAgainstTheOtherSide) {
  const Clock::time_point start{};
  Silence silence(start);
  EXPECT_FALSE(
      silence.too_long(start + milliseconds{60'000}, milliseconds{200}, milliseconds{1000}));
}

/// Returns both ends of a TCP connection.
std::pair<UniqueFd, UniqueFd> connected() {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const address = reinterpret_cast<sockaddr*>(&loopback);
  socklen_t size = sizeof loopback;
  UniqueFd near(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(listener.get(), address, size) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), address, &size) != 0 ||
      ::connect(near.get(), address, size) != 0) {
    throw std::runtime_error("no loopback interface");
  }
  return {std::move(near), UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))};
}

TEST(AgentLinkTest, TheLastFrameReachesAnAgentThatStillSends) {
  auto [near, far] = connected();
  ASSERT_EQ(::send(far.get(), "never read", 10, 0), 10);
  pollfd arrived{.fd = near.get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&arrived, 1, 10'000), 1);
  ssize_t last = -1;
  ssize_t total = 0;
  std::thread agent([fd = std::move(far), &last, &total] {
    char bytes[1024];
    while ((last = ::recv(fd.get(), bytes, sizeof bytes, 0)) > 0) total += last;
  });
  {
    boost::asio::io_context io;
    AgentLink link(io, std::move(near), "task");
    link.send(Finished{.code = 0, .again = false, .report = "all is well"});
  }
  agent.join();
  EXPECT_EQ(last, 0) << "the connection was reset";
  EXPECT_GT(total, 11);
}

/// Its ssh client hangs. The event loop may have handlers queued that use the link.
TEST(AgentLinkTest, AnAgentThatDoesNotEndIsKilledAndItsLinkDestroyed) {
  boost::asio::io_context io;
  auto link = std::make_unique<AgentLink>(
      io, AgentCommand{
              .path = "/bin/sleep", .arguments = {"sleep", "600"}, .variables = {}, .via = "ssh"});
  bool lost = false;
  link->start(milliseconds{0}, {.on_ready = {},
                                .on_frame = {},
                                .on_flushed = {},
                                .on_stderr = {},
                                .on_lost = [&](const AgentLoss&) { lost = true; }});
  link->close();
  while (!link->ended()) ASSERT_EQ(io.run_one_for(std::chrono::seconds{60}), 1U);
  AgentLink::destroy_later(io, std::move(link));
  io.run_for(std::chrono::seconds{60});
  EXPECT_TRUE(io.stopped());
  EXPECT_FALSE(lost);
}

/// Returns the wait status of an agent of this host that runs the script, and that is lost.
int status_of_lost(const std::string& script) {
  boost::asio::io_context io;
  AgentLink link(
      io, AgentCommand{
              .path = "/bin/sh", .arguments = {"sh", "-c", script}, .variables = {}, .via = {}});
  int status = -1;
  link.start(milliseconds{0}, {.on_ready = {},
                               .on_frame = {},
                               .on_flushed = {},
                               .on_stderr = {},
                               .on_lost = [&](const AgentLoss& loss) { status = loss.status; }});
  while (status < 0) {
    if (io.run_one_for(std::chrono::seconds{60}) == 0) throw std::runtime_error("it is not lost");
  }
  return status;
}

/// An agent that leaves closes its stream before it kills its ranks.
TEST(AgentLinkTest, AnAgentThatEndsSoonAfterItsStreamIsNotKilled) {
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    const int status = status_of_lost("exec <&- >&-; /bin/true; exit 5");
    ASSERT_TRUE(WIFEXITED(status)) << "in round " << round;
    EXPECT_EQ(WEXITSTATUS(status), 5);
  }
}

TEST(AgentLinkTest, AnAgentThatOnlyClosesItsStreamIsKilled) {
  const int status = status_of_lost("exec <&- >&-; exec sleep 600");
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST(AgentLinkTest, AHandlerMayCloseItAndLivesAsLongAsIt) {
  boost::asio::io_context io;
  AgentLink link(io, AgentCommand{.path = "/bin/sh",
                                  .arguments = {"sh", "-c", "echo no >&2; exec sleep 600"},
                                  .variables = {},
                                  .via = "ssh"});
  auto captured = std::make_shared<int>();
  const std::weak_ptr<int> handler = captured;
  int calls = 0;
  link.start(milliseconds{0}, {.on_ready = {},
                               .on_frame = {},
                               .on_flushed = {},
                               .on_stderr =
                                   [&, own = std::move(captured)](const std::string&) {
                                     ++calls;
                                     link.close();
                                     EXPECT_FALSE(handler.expired());
                                   },
                               .on_lost = [&](const AgentLoss&) { ++calls; }});
  while (!link.ended()) ASSERT_EQ(io.run_one_for(std::chrono::seconds{60}), 1U);
  EXPECT_EQ(calls, 1);
}

/// The ssh client has a child, as that of a jump host, which does not end with it.
TEST(AgentLinkTest, WhatSshHasStartedEndsWithItAndIsWaitedFor) {
  become_subreaper();
  for (const bool ends : {true, false}) {
    boost::asio::io_context io;
    std::string said;
    bool lost = false;
    auto link = std::make_unique<AgentLink>(
        io, AgentCommand{.path = "/bin/sh",
                         .arguments = {"sh", "-c",
                                       "sleep 600 <&- >&- 2>&- & echo $! >&2; " +
                                           std::string(ends ? "exit 0" : "exec sleep 600")},
                         .variables = {},
                         .via = "ssh"});
    link->start(milliseconds{0}, {.on_ready = {},
                                  .on_frame = {},
                                  .on_flushed = {},
                                  .on_stderr = [&](const std::string& text) { said += text; },
                                  .on_lost = [&](const AgentLoss&) { lost = true; }});
    while (said.find('\n') == std::string::npos || (ends && !lost)) {
      ASSERT_EQ(io.run_one_for(std::chrono::seconds{60}), 1U);
    }
    link.reset();
    EXPECT_EQ(::kill(std::stoi(said), 0), -1) << ends;
    EXPECT_EQ(errno, ESRCH) << ends;
  }
}

TEST(RemoteAgentTest, NoSshClientOpensAWindowUnlessTheUserAsksForOne) {
  const auto require = [](const Variables& own) {
    const AgentCommand command = remote_agent({"b", 1}, "/hvdrun", {}, own);
    return std::string(value_of(command.variables, "SSH_ASKPASS_REQUIRE"));
  };
  EXPECT_EQ(require({"PATH=/usr/bin:/bin"}), "never");
  EXPECT_EQ(require({"PATH=/usr/bin:/bin", "SSH_ASKPASS_REQUIRE=force"}), "force");
}

TEST(AgentStreamTest, IsFlushedWhenTheSystemHasTakenAllFrames) {
  auto [near, far] = connected();
  boost::asio::io_context io;
  UniqueFd output(::dup(near.get()));
  AgentStream stream(io, std::move(near), std::move(output));
  bool told = false;
  stream.when_flushed([&] { told = true; });
  stream.start([](const Frame&) {}, [](const std::string&) {});
  stream.send(Beat{});
  stream.send(Finished{.code = 0, .again = false, .report = ""});
  EXPECT_FALSE(stream.flushed()) << "the second waits until the first is known to be written";
  while (!told) ASSERT_EQ(io.run_one_for(std::chrono::seconds{10}), 1U);
  EXPECT_TRUE(stream.flushed());
}

TEST(AgentStreamTest, AGreetingWithoutAnEndIsNotAwaitedForEver) {
  auto [near, far] = connected();
  boost::asio::io_context io;
  UniqueFd output(::dup(near.get()));
  AgentStream stream(io, std::move(near), std::move(output));
  std::string heard;
  stream.await_greeting([](const std::string&) { FAIL() << "no greeting has ended"; },
                        [&](const std::string& all) { heard = all; });
  const std::string text = "hvdrun-agent " + std::string(std::size_t{1} << 17, 'x');
  std::thread writer([&text, end = far.get()] {
    // Most of it may find no reader any more.
    static_cast<void>(::send(end, text.data(), text.size(), MSG_NOSIGNAL));
  });
  while (heard.empty()) ASSERT_EQ(io.run_one_for(std::chrono::seconds{10}), 1U);
  EXPECT_EQ(heard.size(), std::size_t{1} << 16);
  ::shutdown(far.get(), SHUT_RDWR);
  writer.join();
}

int exited(int code) { return code << 8; }

TEST(AgentLossTest, EveryCauseHasItsCodeAndNamesTheHost) {
  struct Case {
    AgentLoss loss;
    int code;
    const char* words;
  };
  const std::vector<Case> cases = {
      {{.via = "ssh", .status = exited(255), .last_stderr = "ssh: Could not resolve hostname b"},
       69,
       "cannot reach b: ssh: Could not resolve hostname b"},
      {{.via = "ssh", .status = exited(255)}, 69, "cannot reach b: ssh exited 255"},
      {{.via = "ssh", .status = exited(127), .last_stderr = "sh: not found"},
       69,
       "installed there under the same path: sh: not found"},
      {{.via = "ssh", .status = exited(1)}, 69, "no agent started on b: ssh exited 1"},
      {{.via = "ssh", .other_version = "9"}, 76, "'9' on b"},
      {{.via = "ssh", .greeted = true, .silent = milliseconds{9'400}},
       69,
       "b was not heard from for 9.4 s (--host-timeout, HVD_HOST_TIMEOUT_S)"},
      {{.via = "ssh", .greeted = true, .status = exited(255), .last_stderr = "broken pipe"},
       69,
       "lost the connection to b: broken pipe"},
      {{.via = "ssh", .greeted = true, .status = exited(255)}, 70, "the agent on b died"},
      {{.via = "ssh", .greeted = true, .status = exited(137)},
       70,
       "the agent on b was killed by SIGKILL"},
      {{.via = kViaTask, .last_stderr = "'hvdrun' was not found"},
       kExitHostUnreachable,
       "b: 'hvdrun' was not found"},
      {{.via = kViaTask}, kExitHostUnreachable, "b: no hvdrun of this version answered"},
      {{.via = kViaTask, .greeted = true},
       kExitHostUnreachable,
       "lost b: its task, or the connection to it, ended"},
      {{.via = "srun", .status = exited(1), .last_stderr = "srun: error: Invalid node"},
       69,
       "cannot reach b: srun: error: Invalid node"},
      {{.greeted = true, .status = 9}, 70, "the agent on b was killed by SIGKILL"},
      {{.greeted = true, .status = exited(143)}, 70, "the agent on b was killed by SIGTERM"},
      {{.greeted = true, .status = exited(3)}, 70, "the agent on b exited 3"}};
  for (const Case& one : cases) {
    const Trouble trouble = explain(one.loss, "b");
    EXPECT_EQ(trouble.code, one.code) << one.words;
    EXPECT_THAT(trouble.what, HasSubstr(one.words));
  }
}

TEST(AgentLossTest, LastWordsAreOneHarmlessLine) {
  EXPECT_EQ(last_stderr(""), "");
  EXPECT_EQ(last_stderr("one\r\ntwo\r\n\r\nthree \r\n"), "two three");
  EXPECT_EQ(last_stderr("a\x1b[2Jb"), "a?[2Jb");
}

}  // namespace
}  // namespace hvd::launcher
