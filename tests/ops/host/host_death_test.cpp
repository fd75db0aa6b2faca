// A real process dies, or stops, in the middle of an operation of the host engine, when it touches
// a page that mprotect forbids.
#include <csignal>
#include <cstdlib>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/internal/session.hpp>
#include <hvd/core/internal/store_server.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "death/fork_rank.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

enum class Way { small, direct, staged };
constexpr std::size_t kLarge = std::size_t{16} << 20;

volatile std::sig_atomic_t fate = SIGKILL;  // the signal that the child raises

void meet_fate(int) { ::raise(fate); }

Config config_of(int rank, const std::string& store) {
  Config config = thread_config(rank, 2);
  config.rendezvous = Rendezvous::store;
  config.store_address = store;
  config.arena_size = 4 * kLarge;
  return config;
}

/// Returns memory that is page-aligned and zeroed.
std::byte* memory_for(Way way, Arena& arena) {
  if (way == Way::direct) return static_cast<std::byte*>(arena.allocate(kLarge));
  void* const memory =
      ::mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

/// The input and the output of one of the two ranks.
struct Tensors {
  Tensors(Way way, Arena& arena)
      : input(memory_for(way, arena)),
        output(memory_for(way, arena)),
        count(static_cast<std::int64_t>((way == Way::small ? 1024 : kLarge) / sizeof(float))) {}

  /// Forbids the last quarter of each, or all of it when the operation is small.
  void forbid() const {
    const std::size_t begin = count * sizeof(float) < kLarge ? 0 : kLarge / 4 * 3;
    for (std::byte* const data : {input, output}) {
      if (::mprotect(data + begin, kLarge - begin, PROT_NONE) != 0) std::_Exit(2);
    }
  }

  std::byte* input;
  std::byte* output;
  std::int64_t count;
};

/// Runs an operation in which both ranks give or take `count` elements, and rank 1 needs the last
/// of them.
void run(OpKind kind, Backend& backend, const Tensors& tensors, Deadline deadline) {
  const std::int64_t count = tensors.count;
  const std::vector<std::int64_t> halves{count / 2, count / 2};
  const TensorSlice whole{tensors.input, tensors.input, count};
  switch (kind) {
    case OpKind::broadcast:
      return backend.broadcast({{&whole, 1}, {}, DType::f32, 0}, deadline);
    case OpKind::allgather: {
      const GatherSlice slice{tensors.input, tensors.output, halves};
      return backend.allgather({{&slice, 1}, {}, DType::f32}, deadline);
    }
    case OpKind::reducescatter: {
      const ScatterSlice slice{tensors.input, tensors.output, halves};
      return backend.reducescatter({{&slice, 1}, {}, DType::f32, ReduceOp::sum}, deadline);
    }
    case OpKind::alltoall:
      return backend.alltoall({tensors.input, tensors.output, halves, halves, {}, DType::f32},
                              deadline);
    case OpKind::barrier: {  // moves nothing, so that rank 1 touches the page before it
      [[maybe_unused]] const std::byte first =
          *static_cast<const volatile std::byte*>(tensors.input);
      return backend.barrier(deadline);
    }
    default:
      backend.allreduce({.tensors = {&whole, 1}, .device = {}, .op = ReduceOp::sum}, deadline);
  }
}

using Case = std::tuple<OpKind, Way, int>;

/// Runs rank 1. Its first operation succeeds, and in the second one it touches a forbidden page.
[[noreturn]] void fall_over(OpKind kind, Way way, const std::string& store) {
  std::signal(SIGSEGV, meet_fate);
  Session session(config_of(1, store));
  const HostEngine engine = make_host_engine(session);
  const Tensors tensors(way, *engine.arena);
  run(kind, *engine.backend, tensors, soon());
  tensors.forbid();
  run(kind, *engine.backend, tensors, soon());
  std::_Exit(1);
}

class HostDeath : public testing::TestWithParam<Case> {};

TEST_P(HostDeath, IsATypedErrorInTime) {
  const auto [kind, way, signal] = GetParam();
  fate = signal;
  const std::string store = fmt::format("unix:@hvd-test-host-{}-{}-{}-{}", ::getpid(),
                                        static_cast<int>(kind), static_cast<int>(way), signal);
  const pid_t child =
      fork_rank([&, kind = kind, way = way]() -> int { fall_over(kind, way, store); });
  ASSERT_GE(child, 0);
  {
    EventLoop loop;
    const StoreServer server(loop, store,
                             {.job_id = "local", .epoch = 0, .rank = -1, .secret = {}});
    Session session(config_of(0, store));
    HostEngine engine = make_host_engine(session);
    const Tensors tensors(way, *engine.arena);
    ASSERT_NE(tensors.input, nullptr);
    run(kind, *engine.backend, tensors, soon());
    const auto began = Clock::now();
    const bool dies = signal == SIGKILL;
    const Deadline deadline = dies ? soon() : began + std::chrono::milliseconds(200);
    const Error error = error_of([&, op = kind] {
      // A rank that only gives may finish before the other one takes. Then the barrier fails.
      run(op, *engine.backend, tensors, deadline);
      engine.backend->barrier(deadline);
    });
    EXPECT_EQ(error.code(), dies ? Errc::peer_lost : Errc::timeout) << error.what();
    EXPECT_EQ(error.fault().rank, 1);
    // A peer that dies is noticed within 50 ms, but the machine may be busy.
    EXPECT_LT(Clock::now() - began, std::chrono::seconds(5));
  }
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const char* const ways[] = {"small", "direct", "staged"};
  return fmt::format("{}_{}_{}", to_string(std::get<0>(info.param)),
                     ways[static_cast<int>(std::get<1>(info.param))],
                     std::get<2>(info.param) == SIGKILL ? "killed" : "stopped");
}

INSTANTIATE_TEST_SUITE_P(Ways, HostDeath,
                         testing::Combine(testing::Values(OpKind::allreduce, OpKind::broadcast,
                                                          OpKind::allgather, OpKind::reducescatter,
                                                          OpKind::alltoall),
                                          testing::Values(Way::small, Way::direct, Way::staged),
                                          testing::Values(SIGKILL, SIGSTOP)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Barrier, HostDeath,
                         testing::Combine(testing::Values(OpKind::barrier),
                                          testing::Values(Way::small),
                                          testing::Values(SIGKILL, SIGSTOP)),
                         name_of_case);

}  // namespace
}  // namespace hvd::test
