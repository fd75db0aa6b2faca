// A real process dies, or stops, in the middle of an operation of the host engine: when it touches
// a page that it may not.
#include <csignal>
#include <cstdlib>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/session.hpp>
#include <hvd/core/store.hpp>
#include <hvd/ops/backends.hpp>

#include "transports.hpp"

namespace hvd::test {
namespace {

enum class Way { small, direct, staged };
constexpr std::size_t kLarge = std::size_t{16} << 20;

volatile std::sig_atomic_t fate = SIGKILL;  // of the child, by signal

void meet_fate(int) { ::raise(fate); }

Config config_of(int rank, const std::string& store) {
  Config config = thread_config(rank, 2);
  config.rendezvous = Rendezvous::store;
  config.store_address = store;
  config.arena_size = 2 * kLarge;
  return config;
}

std::size_t bytes_of(Way way) { return way == Way::small ? 1024 : kLarge; }

/// Page-aligned and zeroed.
std::byte* memory_for(Way way, Arena& arena) {
  if (way == Way::direct) return static_cast<std::byte*>(arena.allocate(kLarge));
  void* const memory =
      ::mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void sum(Backend& backend, std::byte* data, std::size_t bytes, Deadline deadline) {
  const TensorSlice slice{data, data, static_cast<std::int64_t>(bytes / sizeof(float))};
  backend.allreduce({.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::sum}, deadline);
}

/// Rank 1: one operation goes well, the second one hits a page at three quarters.
[[noreturn]] void fall_over(Way way, const std::string& store) {
  std::signal(SIGSEGV, meet_fate);
  Session session(config_of(1, store));
  const HostEngine engine = make_host_engine(session);
  std::byte* const data = memory_for(way, *engine.arena);
  sum(*engine.backend, data, bytes_of(way), soon());
  const std::size_t begin = way == Way::small ? 0 : kLarge / 4 * 3;
  if (::mprotect(data + begin, kLarge - begin, PROT_NONE) != 0) std::_Exit(2);
  sum(*engine.backend, data, bytes_of(way), soon());
  std::_Exit(1);
}

class HostDeath : public testing::TestWithParam<std::tuple<Way, int>> {};

TEST_P(HostDeath, IsATypedErrorInTime) {
  const Way way = std::get<0>(GetParam());
  fate = std::get<1>(GetParam());
  const std::string store = fmt::format("unix:@hvd-test-host-{}-{}-{}", ::getpid(),
                                        static_cast<int>(way), static_cast<int>(fate));
  const pid_t child = ::fork();  // before this process has threads
  ASSERT_GE(child, 0);
  if (child == 0) fall_over(way, store);
  {
    EventLoop loop;
    const StoreServer server(loop, store,
                             {.job_id = "local", .epoch = 0, .rank = -1, .secret = {}});
    Session session(config_of(0, store));
    const HostEngine engine = make_host_engine(session);
    std::byte* const data = memory_for(way, *engine.arena);
    ASSERT_NE(data, nullptr);
    sum(*engine.backend, data, bytes_of(way), soon());
    const auto began = Clock::now();
    const bool dies = fate == SIGKILL;
    const Deadline deadline = dies ? soon() : began + std::chrono::seconds(1);
    const Error error = error_of([&] { sum(*engine.backend, data, bytes_of(way), deadline); });
    EXPECT_EQ(error.code(), dies ? Errc::peer_lost : Errc::timeout) << error.what();
    EXPECT_EQ(error.fault().rank, 1);
    EXPECT_LT(Clock::now() - began, std::chrono::seconds(20));
  }
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<Way, int>>& info) {
  const char* const ways[] = {"small", "direct", "staged"};
  return std::string(ways[static_cast<int>(std::get<0>(info.param))]) +
         (std::get<1>(info.param) == SIGKILL ? "_killed" : "_stopped");
}

INSTANTIATE_TEST_SUITE_P(Ways, HostDeath,
                         testing::Combine(testing::Values(Way::small, Way::direct, Way::staged),
                                          testing::Values(SIGKILL, SIGSTOP)),
                         name_of_case);

}  // namespace
}  // namespace hvd::test
