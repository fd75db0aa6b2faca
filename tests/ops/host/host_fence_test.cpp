// A rank that was stopped continues after the other has given it up, and may still write to the
// tensors of the other, whose offsets it knows. The memory of the other must not change.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/internal/session.hpp>
#include <hvd/core/internal/store_server.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "death/fork_rank.hpp"
#include "host/host_ranks.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

/// Rank 1 stops between two stores of an allreduce, before it comes to one, or before it announces
/// one that rank 0 has announced. The allreduce is in place, or from one tensor to another.
enum class When { storing, coming, announcing };
struct FenceCase {
  const char* name;
  When when;
  bool in_place;
  std::size_t bytes;
};

void PrintTo(const FenceCase& one, std::ostream* out) { *out << one.name; }

constexpr std::size_t kLarge = std::size_t{4} << 20;
constexpr std::size_t kFew = std::size_t{12} << 10;  // does not begin at a page
constexpr FenceCase kCases[] = {
    {"storing_in_place", When::storing, true, kLarge},
    {"storing_elsewhere", When::storing, false, kLarge},
    {"coming_in_place", When::coming, true, kLarge},
    {"coming_with_little", When::coming, false, kFew},
    {"announcing_in_place", When::announcing, true, kLarge},
    {"announcing_little", When::announcing, false, kFew},
};

std::byte* forbidden = nullptr;  // rank 1 stops when it touches this page
constexpr std::size_t kForbidden = 4096;

/// Returns the number of pages that this thread has mapped or copied so far.
long page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

void stop_here(int) {
  ::mprotect(forbidden, kForbidden, PROT_READ | PROT_WRITE);
  ::raise(SIGSTOP);
}

Config config_of(int rank, const std::string& store) {
  Config config = thread_config(rank, 2);
  config.rendezvous = Rendezvous::store;
  config.store_address = store;
  config.arena_size = 4 * kLarge;
  return config;
}

/// The input and output in the arena, and neighbours that share pages with them.
class Tensors {
 public:
  Tensors(const FenceCase& one, Arena& arena)
      : bytes_(one.bytes), before_(take(arena, kNeighbour)), input_(take(arena, bytes_)) {
    output_ = one.in_place ? input_ : take(arena, bytes_);
    after_ = take(arena, kNeighbour);
    fill(std::byte{0});
    slice_ = {input_, output_, static_cast<std::int64_t>(bytes_ / sizeof(float))};
  }

  [[nodiscard]] AllreduceCall call() const {
    return {.tensors = {&slice_, 1}, .device = {}, .op = ReduceOp::sum};
  }
  [[nodiscard]] std::byte* input() const { return input_; }
  void fill(std::byte value) const {
    for (const auto& [data, size] : all()) std::fill_n(data, size, value);
  }
  void fill_first_halves(std::byte value) const {
    for (const auto& [data, size] : all()) std::fill_n(data, size / 2, value);
  }
  [[nodiscard]] std::vector<std::byte> contents() const {
    std::vector<std::byte> found;
    for (const auto& [data, size] : all()) found.insert(found.end(), data, data + size);
    return found;
  }
  void give_back(Arena& arena) const {
    for (std::byte* const block : {before_, input_, after_}) arena.deallocate(block);
    if (output_ != input_) arena.deallocate(output_);
  }

 private:
  static constexpr std::size_t kNeighbour = 320;
  using Blocks = std::vector<std::pair<std::byte*, std::size_t>>;

  static std::byte* take(Arena& arena, std::size_t bytes) {
    auto* const memory = static_cast<std::byte*>(arena.allocate(bytes));
    if (memory == nullptr) throw Error(Errc::resource, "the arena is full");
    return memory;
  }
  [[nodiscard]] Blocks all() const {
    return {{before_, kNeighbour}, {input_, bytes_}, {output_, bytes_}, {after_, kNeighbour}};
  }

  std::size_t bytes_;
  std::byte* before_;
  std::byte* input_;
  std::byte* output_;
  std::byte* after_;
  TensorSlice slice_;
};

/// Runs rank 1. It exits 0 when it continues and gets the error that rank 0 is lost.
[[noreturn]] void stop_and_go_on(const FenceCase& one, const std::string& store) {
  std::signal(SIGSEGV, stop_here);
  Session session(config_of(1, store));
  const HostEngine engine = make_host_engine(session);
  const Tensors tensors(one, *engine.arena);
  tensors.fill(std::byte{0x77});
  engine.backend->barrier(soon());
  if (one.when == When::storing) {  // in the middle of its share, which is the second half
    forbidden = tensors.input() + one.bytes / 4 * 3;
    if (::mprotect(forbidden, kForbidden, PROT_NONE) != 0) std::_Exit(2);
  } else {
    ::raise(SIGSTOP);
  }
  try {
    if (one.when == When::announcing) engine.backend->announce(tensors.call(), 1);
    engine.backend->allreduce(tensors.call(), soon());
    engine.backend->barrier(soon());  // throws if the allreduce had all it needed
  } catch (const Error& error) {
    std::_Exit(error.code() == Errc::peer_lost && error.fault().rank == 0 ? 0 : 3);
  }
  std::_Exit(4);
}

class HostFence : public testing::TestWithParam<FenceCase> {};

TEST_P(HostFence, WhoWasGivenUpWritesToNobody) {
  const FenceCase& one = GetParam();
  const std::string store = fmt::format("unix:@hvd-test-fence-{}-{}", ::getpid(), one.name);
  const pid_t child = fork_rank([&]() -> int { stop_and_go_on(one, store); });
  ASSERT_GE(child, 0);

  std::shared_ptr<Arena> arena;
  std::optional<Tensors> tensors;
  std::vector<std::byte> kept;
  int status = 0;
  {
    EventLoop loop;
    const StoreServer server(loop, store,
                             {.job_id = "local", .epoch = 0, .rank = -1, .secret = {}});
    Session session(config_of(0, store));
    HostEngine engine = make_host_engine(session);
    arena = engine.arena;
    tensors.emplace(one, *arena);
    engine.backend->barrier(soon());
    if (one.when != When::storing) {
      ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
      ASSERT_TRUE(WIFSTOPPED(status)) << status;
    }
    if (one.when == When::announcing) {  // as when rank 1 does not come and is lost
      engine.backend->announce(tensors->call(), 1);
      const long before = page_faults();
      engine.backend->abort();
      // `abort` must be fast, because the thread that calls it also sends the heartbeats.
      if (one.bytes == kLarge) {
        EXPECT_LT(page_faults() - before, 256) << "abort copied the tensor";
      }
      engine.backend->abandon();
    } else {
      const auto deadline = Clock::now() + std::chrono::milliseconds(200);
      const Error error = error_of([&] { engine.backend->allreduce(tensors->call(), deadline); });
      EXPECT_EQ(error.code(), Errc::timeout) << error.what();
      EXPECT_EQ(error.fault().rank, 1);
    }
    if (one.when == When::storing) {
      ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
      ASSERT_TRUE(WIFSTOPPED(status)) << status;
    }
    tensors->fill_first_halves(std::byte{0x5A});
    kept = tensors->contents();
    engine.backend.reset();
  }
  ASSERT_EQ(::kill(child, SIGCONT), 0);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(tensors->contents() == kept) << "the other wrote to them";

  // The arena is plain memory now, which can be deallocated and allocated again.
  tensors->give_back(*arena);
  const std::size_t used = arena->used();
  EXPECT_EQ(used, 0U);
  void* const all = arena->allocate(arena->capacity());
  ASSERT_NE(all, nullptr);
  std::fill_n(static_cast<std::byte*>(all), arena->capacity(), std::byte{1});
  arena->deallocate(all);

  // This process can be part of another job.
  expect_host_ranks(2, [&](int, HostEngine& engine) {
    const Tensors again(one, *engine.arena);
    engine.backend->allreduce(again.call(), soon());
    const std::vector<std::byte> result = again.contents();
    EXPECT_EQ(std::count(result.begin(), result.end(), std::byte{0}), std::ssize(result));
  });
}

INSTANTIATE_TEST_SUITE_P(Points, HostFence, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace hvd::test
