// Measures the distance to the other end of a TCP stream.
#pragma once

#include <chrono>
#include <optional>

namespace hvd::detail {

/// Returns the shortest round trip that the kernel has measured on a connected stream, including
/// its handshake, or nothing where the kernel does not tell. Any thread may call it.
[[nodiscard]] std::optional<std::chrono::microseconds> shortest_round_trip(int stream) noexcept;

}  // namespace hvd::detail
