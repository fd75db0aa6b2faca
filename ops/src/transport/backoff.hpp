// How long to try again before sleeping in the kernel.
#pragma once

#include <chrono>

#include <hvd/core/types.hpp>

namespace hvd {

/// A hand-over between running threads takes a fraction of a microsecond, one through the kernel
/// some 25. So: look again a few times, then let others have the core for about 100 µs, then sleep.
class Backoff {
 public:
  /// `spins` is 0 where ranks outnumber cores: there only giving the core away helps.
  explicit Backoff(int spins) noexcept : spins_(spins) {}

  /// Waits a moment and returns true, or returns false when it is time to sleep.
  [[nodiscard]] bool pause() noexcept;
  /// There was progress.
  void reset() noexcept { tries_ = 0; }

 private:
  int spins_;
  int tries_ = 0;
  Clock::time_point yield_until_{};
};

/// Spins worth it for this many ranks on the cores this process may use.
[[nodiscard]] int spins_for(int ranks) noexcept;
/// The same on `cores`, those that any of them may use.
[[nodiscard]] int spins_for(int ranks, int cores) noexcept;

}  // namespace hvd
