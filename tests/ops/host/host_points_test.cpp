// A real process dies, or stops, at a named point of an allreduce of the host engine, with two
// ranks and with four. All other ranks are told which one it was, and nothing is left of the job.
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
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
#include "death/leftovers.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

enum class Point {
  small_said,   // it has published its message, and has no result yet
  staged_out,   // it has reduced all its shares, and lacks results of the others
  direct_done,  // it has reduced its part in all arenas, and has not told the others
  announced,    // it has announced the operation, and has not come to it
  asleep,       // it sleeps until the others come
};
constexpr const char* kNames[] = {"small_said", "staged_out", "direct_done", "announced", "asleep"};

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLarge = std::size_t{1}
                               << 20;  // one chunk of 256 KiB more than there are slots

volatile std::sig_atomic_t fate = SIGKILL;  // the signal that the victim raises
void meet_fate(int) { ::raise(fate); }

/// State in memory that all processes share.
struct Together {
  std::atomic<bool> victim_comes{false};
  std::atomic<bool> struck{false};
  std::atomic<int> failed{0};  // the number of ranks that have got their error
};

/// Waits until `done()`. Returns false when that takes too long.
template <class Done>
bool wait_until(const Done& done) {
  for (const Deadline deadline = soon(); !done(); std::this_thread::yield()) {
    if (Clock::now() > deadline) return false;
  }
  return true;
}

/// Zeroed memory in pages of its own.
class Pages {
 public:
  explicit Pages(std::size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Pages() { ::munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  void forbid(std::size_t begin, std::size_t bytes) const {
    if (::mprotect(data() + begin, bytes, PROT_NONE) != 0) std::_Exit(2);
  }

 private:
  std::size_t bytes_;
  void* data_;
};

TensorSlice floats(std::byte* input, std::byte* output, std::size_t bytes) {
  return {input, output, static_cast<std::int64_t>(bytes / sizeof(float))};
}

/// One rank's engine, and the operation in which the last rank is struck.
class Rank {
 public:
  Rank(Point point, int rank, int size, const std::string& store)
      : point_(point), session_(config(rank, size, store)), engine_(make_host_engine(session_)) {
    auto* const shared = static_cast<std::byte*>(engine_.arena->allocate(kLarge));
    if (shared == nullptr) throw std::bad_alloc();
    std::fill_n(shared, kLarge, std::byte{0});
    switch (point) {
      case Point::small_said:
        slices_ = {floats(input_.data(), output_.data(), 1024)};
        break;
      case Point::staged_out:
        slices_ = {floats(input_.data(), output_.data(), kLarge)};
        break;
      case Point::direct_done:  // the tensor in private memory comes after the one in the arena
        slices_ = {floats(shared, shared, kLarge), floats(input_.data(), output_.data(), kLarge)};
        break;
      default:
        slices_ = {floats(shared, shared, kLarge)};
    }
  }

  void reduce(Deadline deadline) { engine_.backend->allreduce(call(), deadline); }
  void announce() { engine_.backend->announce(call(), 1); }
  void meet(Deadline deadline) { engine_.backend->barrier(deadline); }

  /// Lets the signal strike the victim in its next operation, or here.
  void prepare() {
    std::signal(SIGSEGV, meet_fate);
    switch (point_) {
      case Point::small_said:
        return output_.forbid(0, kPage);
      case Point::staged_out:  // the part of the last chunk that rank 0 reduces
        return output_.forbid(kLarge / 4 * 3, kPage);
      case Point::direct_done:
        return input_.forbid(0, kPage);
      case Point::announced:
        announce();
        ::raise(fate);
        return;
      case Point::asleep:  // rank 0 strikes it
        return;
    }
  }

 private:
  static Config config(int rank, int size, const std::string& store) {
    Config config = thread_config(rank, size);
    config.rendezvous = Rendezvous::store;
    config.store_address = store;
    config.arena_size = 4 * kLarge;
    return config;
  }
  [[nodiscard]] AllreduceCall call() const {
    return {.tensors = slices_, .device = {}, .op = ReduceOp::sum};
  }

  Point point_;
  Pages input_{kLarge};
  Pages output_{kLarge};
  Session session_;
  HostEngine engine_;
  std::vector<TensorSlice> slices_;
};

struct Job {
  Point point;
  int size;
  int signal;
  std::string store;
  Together* together;

  [[nodiscard]] int victim() const { return size - 1; }
};

[[noreturn]] void be_struck(const Job& job) {
  fate = job.signal;
  Rank self(job.point, job.victim(), job.size, job.store);
  self.reduce(soon());
  self.meet(soon());
  job.together->victim_comes = true;
  self.prepare();
  self.reduce(soon());
  std::_Exit(1);
}

/// Runs another rank, which comes to the operation once `may()` returns true. Returns its error.
template <class May>
Error fail(const Job& job, int rank, const May& may) {
  Rank self(job.point, rank, job.size, job.store);
  self.reduce(soon());
  self.meet(soon());
  if (job.point == Point::announced) self.announce();
  if (!may()) return {Errc::internal, "nobody was struck"};
  const Deadline deadline =
      job.signal == SIGKILL ? soon() : Clock::now() + std::chrono::milliseconds(400);
  const Error error = error_of([&] {
    self.reduce(deadline);  // succeeds where the victim was not needed any more
    self.meet(deadline);
  });
  ++job.together->failed;
  // A rank that left now would count as lost itself with ranks that have not got their error yet.
  const bool all = wait_until([&] { return job.together->failed == job.size - 1; });
  return all ? error : Error(Errc::internal, "not all have failed");
}

bool as_expected(const Job& job, const Error& error) {
  return error.code() == (job.signal == SIGKILL ? Errc::peer_lost : Errc::timeout) &&
         error.fault().rank == job.victim();
}

char state_of(pid_t process) {
  std::ifstream stat(fmt::format("/proc/{}/stat", process));
  std::string id;
  std::string name;
  char state = '?';
  stat >> id >> name >> state;
  return state;
}

/// Strikes the victim when it has come alone and sleeps.
bool strike_in_its_sleep(const Job& job, pid_t victim) {
  const bool asleep =
      wait_until([&] { return job.together->victim_comes && state_of(victim) == 'S'; });
  ::kill(victim, job.signal);
  siginfo_t over{};
  const int how = (job.signal == SIGKILL ? WEXITED : WSTOPPED) | WNOWAIT;
  return asleep && ::waitid(P_PID, static_cast<id_t>(victim), &over, how) == 0;
}

using Parameter = std::tuple<Point, int, int>;

class HostPoints : public testing::TestWithParam<Parameter> {};

TEST_P(HostPoints, EverybodyIsToldWhoItWas) {
  const auto [point, size, signal] = GetParam();
  void* const shared =
      ::mmap(nullptr, sizeof(Together), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  const Job job{point, size, signal,
                fmt::format("unix:@hvd-test-points-{}-{}-{}-{}", ::getpid(),
                            static_cast<int>(point), size, signal),
                new (shared) Together};
  const auto may_come = [&] {
    const Together& together = *job.together;
    const auto& begun = job.point == Point::asleep ? together.struck : together.victim_comes;
    return wait_until([&] { return begun.load(); });
  };
  const std::ptrdiff_t descriptors = entries("/proc/self/fd");
  std::vector<pid_t> children;
  for (int rank = 1; rank < size; ++rank) {
    children.push_back(fork_rank([&] {
      if (rank == job.victim()) be_struck(job);
      return as_expected(job, fail(job, rank, may_come)) ? 0 : 1;
    }));
    ASSERT_GE(children.back(), 0);
  }
  const auto began = Clock::now();
  {
    EventLoop loop;
    const StoreServer server(loop, job.store,
                             {.job_id = "local", .epoch = 0, .rank = -1, .secret = {}});
    const Error error = fail(job, 0, [&] {
      if (job.point != Point::asleep) return may_come();
      job.together->struck = strike_in_its_sleep(job, children.back());
      return job.together->struck.load();
    });
    EXPECT_TRUE(as_expected(job, error)) << error.what();
  }
  if (signal == SIGKILL) {
    EXPECT_LT(Clock::now() - began, std::chrono::seconds(5));
  }
  ::kill(children.back(), SIGKILL);
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const bool as_planned = child == children.back()
                                ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    EXPECT_TRUE(as_planned) << child << ": " << status;
  }
  ::munmap(shared, sizeof(Together));
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(own_threads(), 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostPoints,
                         testing::Combine(testing::Values(Point::small_said, Point::staged_out,
                                                          Point::direct_done, Point::announced,
                                                          Point::asleep),
                                          testing::Values(2, 4), testing::Values(SIGKILL, SIGSTOP)),
                         [](const auto& test) {
                           return fmt::format(
                               "{}_of_{}_{}", kNames[static_cast<int>(std::get<0>(test.param))],
                               std::get<1>(test.param),
                               std::get<2>(test.param) == SIGKILL ? "killed" : "stopped");
                         });

}  // namespace
}  // namespace hvd::test
