// Bridges the time in which waiting without the kernel's help is quicker than sleeping.
#pragma once

#include <hvd/core/types.hpp>

namespace hvd::detail {

/// Yields the core to other threads for about 100 µs before a wait sleeps in the kernel: a rank
/// that is about to answer does so within that time, and sleeping and being woken takes some 25 µs.
class YieldBeforeSleep {
 public:
  /// Yields the core once and returns true; returns false when it is time to sleep.
  [[nodiscard]] bool pause() noexcept;
  /// Begins the time anew. The caller calls it after progress.
  void reset() noexcept { until_ = {}; }

 private:
  Clock::time_point until_{};
};

}  // namespace hvd::detail
