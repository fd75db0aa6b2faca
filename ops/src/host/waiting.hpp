// How a rank waits for others of its host.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include <hwy/cache_control.h>

#include <hvd/core/types.hpp>

#include "polling/spin_budget.hpp"
#include "transport/failure.hpp"
#include "transport/shm_layout.hpp"

namespace hvd {

/// What it takes to wake another rank and to notice its end.
struct HostNeighbour {
  int rank = -1;
  ShmDoorbell* bell = nullptr;
  int stream = -1;  ///< ends with the rank
};

/// Spins a little where there is a core for every rank, then yields, then sleeps in the kernel
/// until a neighbour rings, at most 50 ms: then it looks whether they are all still there.
class HostWaiting {
 public:
  HostWaiting(ShmDoorbell& own, int spins, const Failure& failure) noexcept
      : own_(own), spins_(spins), failure_(failure) {}

  /// What this rank is waiting with, and who should come.
  struct For {
    std::span<const HostNeighbour> neighbours;  ///< all of the group
    const HostNeighbour* missing = nullptr;     ///< who is named when time is up
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
  static void ring(std::span<const HostNeighbour> neighbours) noexcept;
  /// Makes this rank look up from its sleep. Any thread.
  void wake() noexcept;

 private:
  using Ready = std::function<bool()>;

  void wait_long(const Ready& ready, const For& call);
  void sleep(const Ready& ready, const For& call);

  ShmDoorbell& own_;
  SpinBudget spins_;
  const Failure& failure_;
};

}  // namespace hvd
