// Waits for descriptors.
#pragma once

#include <span>

#include <poll.h>

#include <hvd/core/internal/fd.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

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
  [[nodiscard]] bool raised() const noexcept;
  void clear() const noexcept;

 private:
  UniqueFd fd_;
};

}  // namespace hvd
