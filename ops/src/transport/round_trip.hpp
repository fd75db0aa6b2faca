// How far away the other end of a TCP stream is.
#pragma once

#include <chrono>
#include <optional>

namespace hvd {

/// The shortest round trip that the kernel has seen on a connected stream, its handshake included;
/// nothing where it does not say. Any thread.
[[nodiscard]] std::optional<std::chrono::microseconds> shortest_round_trip(int stream) noexcept;

}  // namespace hvd
