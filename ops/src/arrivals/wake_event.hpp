// Wakes a thread that sleeps in poll.
#pragma once

#include <poll.h>

#include <hvd/core/fd.hpp>

namespace hvd {

/// An eventfd. Any thread.
class WakeEvent {
 public:
  /// Throws Errc::resource.
  WakeEvent();

  [[nodiscard]] pollfd interest() const noexcept {
    return {.fd = fd_.get(), .events = POLLIN, .revents = 0};
  }
  /// Readable until `clear`.
  void raise() const noexcept;
  void clear() const noexcept;

 private:
  UniqueFd fd_;
};

}  // namespace hvd
