#include "host/waiting.hpp"

#include <algorithm>
#include <atomic>

#include "transport/backoff.hpp"
#include "transport/futex.hpp"
#include "transport/host_meeting.hpp"

namespace hvd {
namespace {

/// The longest sleep before looking whether the others are still there.
constexpr std::chrono::milliseconds kNap{50};

void ring_one(ShmDoorbell& bell) noexcept {
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(bell.rings);
}

void check_time(const HostWaiting::For& call) {
  if (Clock::now() < call.deadline) return;
  throw peer_timeout(call.missing->rank, "did not come in time");
}

}  // namespace

void HostWaiting::ring(std::span<const HostNeighbour> neighbours) noexcept {
  // What was stored before is seen by whoever goes to sleep from here on: see `sleep`.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const HostNeighbour& other : neighbours) {
    if (other.bell->sleeping.load(std::memory_order_relaxed) != 0) ring_one(*other.bell);
  }
}

void HostWaiting::wake() noexcept { ring_one(own_); }

void HostWaiting::wait_long(const Ready& ready, const For& call) {
  ring(call.neighbours);
  Backoff backoff(0);
  for (unsigned looks = 1; !ready(); ++looks) {
    failure_.check();
    if (looks % 64 == 0) check_time(call);
    if (!backoff.pause()) sleep(ready, call);
  }
}

void HostWaiting::sleep(const Ready& ready, const For& call) {
  check_time(call);
  const std::uint32_t heard = own_.rings.load(std::memory_order_seq_cst);
  own_.sleeping.store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Again, now that the others know: what came before would not ring.
  if (!ready() && !failure_.aborted()) {
    futex_wait(own_.rings, heard, std::min(call.deadline, Clock::now() + kNap));
  }
  own_.sleeping.store(0, std::memory_order_seq_cst);
  if (ready()) return;

  const HostNeighbour* lost = nullptr;
  for (const HostNeighbour& other : call.neighbours) {
    if (!stream_ended(other.stream)) continue;
    if (lost == nullptr || &other == call.missing) lost = &other;
  }
  // What a rank did before it left is still good.
  if (lost == nullptr || ready()) return;
  throw peer_lost(lost->rank, "closed its connection");
}

}  // namespace hvd
