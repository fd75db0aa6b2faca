// Lets a rank wait for values that other ranks of its host store in shared memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <hwy/cache_control.h>
#include <poll.h>

#include <hvd/core/types.hpp>

#include "shm/shared_cpu.hpp"
#include "transport/failure.hpp"

namespace hvd::detail {

/// Processors prefetch cache lines in pairs of 128 bytes, so data that different ranks write is put
/// into different pairs.
inline constexpr std::size_t kLinePair = 128;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Holds the means, in shared memory, to wake a rank that sleeps. `rings` is the futex.
struct alignas(kLinePair) Doorbell {
  static constexpr std::int32_t kNobody = -1;

  std::atomic<std::uint32_t> rings{0};
  std::atomic<std::int32_t> awaited{kNobody};  ///< the rank for which the owner sleeps
  std::atomic<SharedCpu::Place> place{0};
};

/// Holds what is needed to wake another rank and to notice its end.
struct Neighbour {
  int rank = -1;
  Doorbell* bell = nullptr;
  int stream = -1;  ///< a socket whose other end closes when the rank ends
};

/// Decides how often a wait looks again (spins) before it yields the core. Spinning pays when the
/// awaited rank runs on another core, and delays it when it needs this one. So waits that spun in
/// vain make the next ones spin less. One thread at a time may call it.
class SpinBudget {
 public:
  /// With a `most` of 0 no wait spins.
  explicit SpinBudget(int most) noexcept : most_(most), now_(most) {}

  /// Returns how often the next wait looks.
  [[nodiscard]] int now() const noexcept { return now_; }
  /// Records that the awaited event came with this look; a number above `now()` means that it came
  /// after the core was yielded.
  void came_after(int looks) noexcept {
    if (looks <= now_) {
      if (looks > 0) now_ = std::min(now_ + 1 + now_ / 4, most_);
      missed_ = 0;
      return;
    }
    ++missed_;
    const int least = most_ / 16;
    if (missed_ % kTryAgain == 0) {
      now_ = most_;  // an event that takes more looks than the least may be common again
    } else {
      now_ = missed_ < kTryAgain ? std::max(now_ / 2, least) : least;
    }
  }

 private:
  static constexpr int kTryAgain = 32;  // waits in vain before one looks as often as the first did

  int most_;
  int now_;
  int missed_ = 0;  // waits in a row that spun in vain
};

/// Returns how often a wait among `ranks` may look, if together they may run on `cores`. It is 0
/// where there are more ranks than cores, since the awaited rank may need this core.
[[nodiscard]] int spins_for(int ranks, int cores) noexcept;

/// Spins a little where there is a core for every rank, then yields, then sleeps in the kernel
/// until the awaited rank wakes it. Every 50 ms, or every n ms where there are n > 50 neighbours,
/// it checks whether all of them still live. One thread at a time may call it, except for `wake`.
class ShmWait {
 public:
  /// `rank` is the caller's. Waits for at most `neighbours` ranks allocate no memory.
  ShmWait(int rank, Doorbell& own, int spins, const Failure& failure, std::size_t neighbours = 0)
      : rank_(rank), own_(own), spins_(spins), failure_(failure) {
    polled_.reserve(neighbours);
  }

  /// Warns when the caller and another rank stay on the same CPU.
  void watch_cpu() { shared_cpu_.emplace(rank_); }

  /// Names the ranks that a wait depends on.
  struct For {
    std::span<const Neighbour> neighbours;  ///< all others of the group
    const Neighbour* awaited;               ///< one of them
    Deadline deadline;
  };

  /// Returns once `ready()` is true, which depends on values that the awaited rank stores, or on
  /// what this process stores before it calls `wake`. Throws timeout (naming the awaited rank),
  /// peer_lost (naming a rank that is gone) or aborted.
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

  /// Wakes those of the neighbours that sleep for this rank. The caller calls it after storing
  /// values that they may wait for.
  void ring(std::span<const Neighbour> neighbours) const noexcept;
  /// Returns whether the rank has ended, or has given up its shared memory.
  [[nodiscard]] static bool is_gone(const Neighbour& other);
  /// Makes this rank check its condition again, also while it sleeps. Any thread may call it.
  void wake() noexcept;

 private:
  using Ready = std::function<bool()>;

  void wait_long(const Ready& ready, const For& call);
  void note_cpu(const Neighbour& awaited);
  void sleep(const Ready& ready, const For& call, Deadline until);
  void check_neighbours(const Ready& ready, const For& call);
  [[nodiscard]] const Neighbour* find_lost(const For& call);

  int rank_;
  Doorbell& own_;
  SpinBudget spins_;
  const Failure& failure_;
  std::optional<SharedCpu> shared_cpu_;
  std::vector<pollfd> polled_;
};

}  // namespace hvd::detail
