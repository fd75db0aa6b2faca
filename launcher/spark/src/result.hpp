// How a result lies in its descriptor: a byte that tells its kind, which is 0 until the rest is
// there, and the result. launcher/spark/hvd_spark/result.py reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hvd {

enum class ResultKind : std::uint8_t { bytes = 'b', json = 'j' };

/// Replaces what is in `fd`, a file or memfd. Throws like `set_result`.
void write_result(int fd, ResultKind kind, std::span<const std::byte> bytes);

}  // namespace hvd
