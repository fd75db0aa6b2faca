// Waiting for descriptors with a deadline.
#pragma once

#include <span>

#include <poll.h>

#include <hvd/core/types.hpp>

namespace hvd {

/// As poll(2), again after a signal. Returns false when the deadline came first; a deadline in the
/// past only looks. Throws Errc::resource when the system refuses.
[[nodiscard]] bool poll_until(std::span<pollfd> fds, Deadline deadline);

}  // namespace hvd
