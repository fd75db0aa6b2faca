// How a rank waits for what other ranks of its host store in shared memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <hwy/cache_control.h>
#include <poll.h>

#include <hvd/core/types.hpp>

#include "transport/failure.hpp"

namespace hvd {

/// Processors fetch cache lines in pairs of 128 bytes: what different ranks write lies in different
/// pairs.
inline constexpr std::size_t kLinePair = 128;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// In shared memory: how a rank that sleeps is woken. `rings` is the futex.
struct alignas(kLinePair) Doorbell {
  std::atomic<std::uint32_t> rings{0};
  std::atomic<std::uint32_t> sleeping{0};
};

/// What it takes to wake another rank and to notice its end.
struct Neighbour {
  int rank = -1;
  Doorbell* bell = nullptr;
  int stream = -1;  ///< a socket whose other end closes when the rank ends
};

/// How often to look again before giving the core away. Spinning pays when the other is about to
/// come on a core of its own, and delays it when both are on one: as the last waits went, so the
/// next begins. One thread at a time.
class SpinBudget {
 public:
  /// `most` 0: never spins.
  explicit SpinBudget(int most) noexcept : most_(most), now_(most) {}

  /// So many looks are worth it.
  [[nodiscard]] int now() const noexcept { return now_; }
  /// What was waited for came with that look; more than `now()`: after the core was given away.
  void came_after(int looks) noexcept {
    if (looks <= now_) {
      if (looks > 0) now_ = std::min(now_ + 1 + now_ / 4, most_);
      missed_ = 0;
      return;
    }
    ++missed_;
    const int least = most_ / 16;
    if (missed_ % kTryAgain == 0) {
      now_ = most_;  // or what takes a little more than the least would never be spun for again
    } else {
      now_ = missed_ < kTryAgain ? std::max(now_ / 2, least) : least;
    }
  }

 private:
  static constexpr int kTryAgain = 32;  // waits in vain

  int most_;
  int now_;
  int missed_ = 0;  // in a row
};

/// Spins worth it for `ranks` on `cores`, those that any of them may run on; 0 where ranks
/// outnumber cores: there only giving the core away helps.
[[nodiscard]] int spins_for(int ranks, int cores) noexcept;

/// Spins a little where there is a core for every rank, then yields, then sleeps in the kernel
/// until a neighbour rings, at most 50 ms: then it looks whether they are all still there. One
/// thread at a time, but for `wake`.
class ShmWait {
 public:
  /// With at most so many `neighbours` no wait takes memory from the heap.
  ShmWait(Doorbell& own, int spins, const Failure& failure, std::size_t neighbours = 0)
      : own_(own), spins_(spins), failure_(failure) {
    polled_.reserve(neighbours);
  }

  /// What this rank is waiting with, and who should come.
  struct For {
    std::span<const Neighbour> neighbours;  ///< all of the group
    const Neighbour* missing = nullptr;     ///< who is named when time is up
    Deadline deadline;
  };

  /// Returns once `ready()`; throws timeout, peer_lost (naming whoever is gone) or aborted.
  template <class Ready>
  void until(Ready ready, const For& call) {
    for (int spin = 0;; ++spin) {
      if (ready()) {
        spins_.came_after(spin);
        return;
      }
      if (spin >= spins_.now()) break;
      hwy::Pause();
    }
    spins_.came_after(spins_.now() + 1);
    wait_long(std::ref(ready), call);
  }

  /// Wakes those who sleep. After storing what they may be waiting for.
  static void ring(std::span<const Neighbour> neighbours) noexcept;
  /// Whether the rank has ended, or has given up its shared memory.
  [[nodiscard]] static bool is_gone(const Neighbour& other);
  /// Makes this rank look again at what it waits for, also out of its sleep. Any thread.
  void wake() noexcept;

 private:
  using Ready = std::function<bool()>;

  void wait_long(const Ready& ready, const For& call);
  void sleep(const Ready& ready, const For& call);
  [[nodiscard]] const Neighbour* find_lost(const For& call);

  Doorbell& own_;
  SpinBudget spins_;
  const Failure& failure_;
  std::vector<pollfd> polled_;
};

}  // namespace hvd
