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

/// Returns the time between two checks whether the other ranks still live. It grows with their
/// number, as the time that a check takes does.
std::chrono::milliseconds time_between_checks(std::size_t neighbours) noexcept {
  return std::chrono::milliseconds(std::max<std::size_t>(50, neighbours));
}

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
  throw peer_timeout(call.awaited->rank, "did not come in time");
}

}  // namespace

int spins_for(int ranks, int cores) noexcept { return cores >= ranks ? kSpins : 0; }

void ShmWait::ring(std::span<const Neighbour> neighbours) const noexcept {
  // A rank that is about to sleep either sees what was stored before this fence, or has set
  // `awaited`, which is read after it: see `sleep`.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const Neighbour& other : neighbours) {
    if (other.bell->awaited.load(std::memory_order_relaxed) == rank_) ring_one(*other.bell);
  }
}

void ShmWait::wake() noexcept { ring_one(own_); }

bool ShmWait::is_gone(const Neighbour& other) {
  pollfd stream{.fd = other.stream, .events = POLLRDHUP, .revents = 0};
  return poll_until({&stream, 1}, Clock::now());
}

void ShmWait::wait_long(const Ready& ready, const For& call) {
  ring(call.neighbours);
  if (shared_cpu_) note_cpu(*call.awaited);
  const auto between_checks = time_between_checks(call.neighbours.size());
  Deadline next_check = Clock::now() + between_checks;
  YieldBeforeSleep yields;
  for (unsigned looks = 1; !ready(); ++looks) {
    failure_.check();
    if (looks % 64 == 0) check_time(call);
    if (yields.pause()) continue;
    check_time(call);
    sleep(ready, call, next_check);
    if (Clock::now() < std::min(next_check, call.deadline)) continue;
    check_neighbours(ready, call);
    next_check = Clock::now() + between_checks;
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
  log(LogLevel::warn, rank_,
      fmt::format("ranks {} and {} stay on CPU {}, so each of them waits while the other runs, "
                  "although the machine has a CPU for each rank; what started them may have bound "
                  "them to it",
                  rank_, awaited.rank, cpu));
}

void ShmWait::sleep(const Ready& ready, const For& call, Deadline until) {
  const std::uint32_t rings = own_.rings.load(std::memory_order_relaxed);
  own_.awaited.store(call.awaited->rank, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // From now on the awaited rank sees that it must wake this one. It did not wake it for what it
  // stored before, so the condition is checked again.
  if (!ready() && !failure_.aborted()) {
    futex_wait(own_.rings, rings, std::min(call.deadline, until));
  }
  own_.awaited.store(Doorbell::kNobody, std::memory_order_relaxed);
}

/// Throws if a neighbour is gone and the wait is in vain.
void ShmWait::check_neighbours(const Ready& ready, const For& call) {
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
    if (lost == nullptr || &other == call.awaited) lost = &other;
  }
  return lost;
}

}  // namespace hvd::detail
