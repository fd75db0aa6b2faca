// A real process dies in the middle of an exchange.
#include <csignal>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/internal/store_server.hpp>

#include "death/fork_rank.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

constexpr std::size_t kBytes = std::size_t{64} << 20;  // more than any buffer on the way

Config config_of(int rank, const std::string& store) {
  Config config = thread_config(rank, 2);
  config.rendezvous = Rendezvous::store;
  config.store_address = store;
  return config;
}

/// Runs rank 1, which kills itself once a tenth of the bytes has come.
[[noreturn]] void die_while_receiving(const std::string& store) {
  Session session(config_of(1, store));
  const auto transport = make_transport(Kind::tcp, session);
  const std::vector<std::byte> out(kBytes);
  const auto sink = [](std::size_t offset, std::span<const std::byte>) {
    if (offset > kBytes / 10) ::raise(SIGKILL);
  };
  transport->exchange({.peer = 0, .bytes = out},
                      {.peer = 0, .size = kBytes, .into = nullptr, .sink = sink}, soon());
  std::_Exit(1);
}

TEST(PeerDeath, IsALostPeerWithItsRank) {
  const std::string store = fmt::format("unix:@hvd-test-{}", ::getpid());
  const pid_t child = fork_rank([&]() -> int { die_while_receiving(store); });
  ASSERT_GE(child, 0);
  {
    EventLoop loop;
    const StoreServer server(loop, store,
                             {.job_id = "local", .epoch = 0, .rank = -1, .secret = {}});
    Session session(config_of(0, store));
    const auto transport = make_transport(Kind::tcp, session);
    const std::vector<std::byte> out(kBytes);
    std::vector<std::byte> in(kBytes);
    const auto exchange = [&] {
      transport->exchange({.peer = 1, .bytes = out},
                          {.peer = 1, .size = in.size(), .into = in.data(), .sink = {}}, soon());
    };
    const auto began = Clock::now();
    const Error error = error_of(exchange);
    EXPECT_EQ(error.code(), Errc::peer_lost) << error.what();
    EXPECT_EQ(error.fault().rank, 1);
    EXPECT_LT(Clock::now() - began, std::chrono::seconds(5));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

}  // namespace
}  // namespace hvd::test
