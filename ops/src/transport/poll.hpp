// Waits for descriptors.
#pragma once

#include <chrono>
#include <span>

#include <poll.h>

#include <hvd/core/internal/fd.hpp>
#include <hvd/core/types.hpp>

namespace hvd::detail {

/// Does what poll(2) does, but goes on after a signal. Returns false when the deadline came first.
/// With a deadline in the past it does not wait. Throws Errc::resource when the system refuses.
[[nodiscard]] bool poll_until(std::span<pollfd> fds, Deadline deadline);

/// Owns an eventfd that wakes a thread which sleeps in `poll_until`. Any thread may call it.
class WakeEvent {
 public:
  /// Throws Errc::resource.
  WakeEvent();

  [[nodiscard]] pollfd interest() const noexcept {
    return {.fd = fd_.get(), .events = POLLIN, .revents = 0};
  }
  /// Makes the event readable until `clear`.
  void raise() const noexcept;
  void clear() const noexcept;

 private:
  UniqueFd fd_;
};

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
