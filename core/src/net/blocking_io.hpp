// Reads and writes non-blocking sockets, blocking until a deadline, on any thread but the loop's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

#include <hvd/core/internal/poll.hpp>
#include <hvd/core/types.hpp>

namespace hvd::net {

/// Interrupts waits. Once raised, it ends every wait to which it is passed, also later ones.
using Interrupt = WakeEvent;

/// Reports that the stream ended or broke; `what()` says how, as in "connection closed".
struct StreamLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Ready : std::uint8_t { read, write };

/// Waits until `fd` is ready. Returns false when `deadline` comes first. Throws Errc::aborted when
/// interrupted.
[[nodiscard]] bool wait_ready(int fd, Ready what, Deadline deadline, const Interrupt& interrupt);
/// Waits until `deadline`. Throws Errc::aborted when interrupted.
void pause_until(Deadline deadline, const Interrupt& interrupt);

/// Reads at least one byte into `out`. Returns the number of bytes, or 0 when `deadline` comes
/// first. Throws like `read_exact`.
[[nodiscard]] std::size_t read_some(int fd, std::span<std::byte> out, Deadline deadline,
                                    const Interrupt& interrupt);
/// Fills `out`. Returns false when `deadline` comes first. Throws StreamLost and Errc::aborted.
[[nodiscard]] bool read_exact(int fd, std::span<std::byte> out, Deadline deadline,
                              const Interrupt& interrupt);
/// Writes all of `bytes`, without SIGPIPE. Returns and throws like `read_exact`.
[[nodiscard]] bool write_all(int fd, std::span<const std::byte> bytes, Deadline deadline,
                             const Interrupt& interrupt);

}  // namespace hvd::net
