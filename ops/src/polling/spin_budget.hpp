// How often to look again before giving the core away.
#pragma once

#include <algorithm>

namespace hvd {

/// Spinning pays when the other is about to come on a core of its own, and delays it when both are
/// on one: as the last waits went, so the next begins. One thread at a time.
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

}  // namespace hvd
