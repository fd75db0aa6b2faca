// Tells whether what was sent over a socket has arrived.
#pragma once

namespace hvd {

/// Returns whether the host at the other end of the stream has acknowledged everything that was
/// written, so that this end may close without losing it. That is always so for a Unix socket,
/// whose other end can read everything even after this end has closed.
[[nodiscard]] bool is_delivered(int stream) noexcept;

}  // namespace hvd
