#include "shm/wait.hpp"

#include <chrono>
#include <climits>
#include <ctime>

#include <fmt/format.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <hvd/core/internal/poll.hpp>
#include <hvd/core/log.hpp>

#include "transport/yield_before_sleep.hpp"

namespace hvd::detail {
namespace {

constexpr int kSpins = 200;  // about 5 µs
/// The longest sleep before a check whether the other ranks still live.
constexpr std::chrono::milliseconds kNap{50};

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

/// Waits with futex(2): returns when woken, at about `until`, at once when `word` is not
/// `expected`, and sometimes spuriously.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Deadline until) noexcept {
  using std::chrono::nanoseconds;
  const auto left = std::max(nanoseconds{0}, nanoseconds(until - Clock::now()));
  const timespec timeout{.tv_sec = static_cast<std::time_t>(left.count() / 1'000'000'000),
                         .tv_nsec = static_cast<long>(left.count() % 1'000'000'000)};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void ring_one(Doorbell& bell) noexcept {
  // A rank that reads the new number also sees what was stored before, because the fence in `sleep`
  // follows the load. So it need not be woken.
  bell.rings.fetch_add(1, std::memory_order_release);
  ::syscall(SYS_futex, &bell.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void check_time(const ShmWait::For& call) {
  if (Clock::now() < call.deadline) return;
  throw peer_timeout(call.missing->rank, "did not come in time");
}

}  // namespace

int spins_for(int ranks, int cores) noexcept { return cores >= ranks ? kSpins : 0; }

void ShmWait::ring(std::span<const Neighbour> neighbours) noexcept {
  // A rank that is about to sleep either sees what was stored before this fence, or has set
  // `sleeping`, which is read after it: see `sleep`.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const Neighbour& other : neighbours) {
    if (other.bell->sleeping.load(std::memory_order_relaxed) != 0) ring_one(*other.bell);
  }
}

void ShmWait::wake() noexcept { ring_one(own_); }

bool ShmWait::is_gone(const Neighbour& other) {
  pollfd stream{.fd = other.stream, .events = POLLRDHUP, .revents = 0};
  return poll_until({&stream, 1}, Clock::now());
}

void ShmWait::wait_long(const Ready& ready, const For& call) {
  ring(call.neighbours);
  if (shared_cpu_ && call.missing != nullptr) note_cpu(*call.missing);
  YieldBeforeSleep yields;
  for (unsigned looks = 1; !ready(); ++looks) {
    failure_.check();
    if (looks % 64 == 0) check_time(call);
    if (!yields.pause()) sleep(ready, call);
  }
}

void ShmWait::note_cpu(const Neighbour& awaited) {
  const int cpu = ::sched_getcpu();
  if (cpu < 0) return;
  const auto place =
      SharedCpu::next(own_.place.load(std::memory_order_relaxed), static_cast<unsigned>(cpu));
  own_.place.store(place, std::memory_order_relaxed);
  const auto theirs = awaited.bell->place.load(std::memory_order_relaxed);
  if (!shared_cpu_->begins_to_wait(place, awaited.rank, theirs, Clock::now())) return;
  log(LogLevel::warn, shared_cpu_->rank(),
      fmt::format("ranks {} and {} stay on CPU {}, so each of them waits while the other runs, "
                  "although the machine has a CPU for each rank; what started them may have bound "
                  "them to it",
                  shared_cpu_->rank(), awaited.rank, cpu));
}

void ShmWait::sleep(const Ready& ready, const For& call) {
  check_time(call);
  const std::uint32_t rings = own_.rings.load(std::memory_order_relaxed);
  own_.sleeping.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // From now on the others see that they must wake this rank. They did not wake it for what they
  // stored before, so the condition is checked again.
  if (!ready() && !failure_.aborted()) {
    futex_wait(own_.rings, rings, std::min(call.deadline, Clock::now() + kNap));
  }
  own_.sleeping.store(0, std::memory_order_relaxed);
  if (ready()) return;

  const Neighbour* const lost = find_lost(call);
  // Values that a rank stored before it ended are still valid, so the wait may still succeed.
  if (lost == nullptr || ready()) return;
  throw peer_lost(lost->rank, "closed its connection");
}

/// Returns a neighbour that is gone, or null. If several are gone it is the awaited one, provided
/// that is among them.
const Neighbour* ShmWait::find_lost(const For& call) {
  polled_.clear();
  for (const Neighbour& other : call.neighbours) {
    polled_.push_back({.fd = other.stream, .events = POLLRDHUP, .revents = 0});
  }
  if (!poll_until(polled_, Clock::now())) return nullptr;
  const Neighbour* lost = nullptr;
  for (std::size_t i = 0; i < polled_.size(); ++i) {
    if (polled_[i].revents == 0) continue;
    const Neighbour& other = call.neighbours[i];
    if (lost == nullptr || &other == call.missing) lost = &other;
  }
  return lost;
}

}  // namespace hvd::detail
