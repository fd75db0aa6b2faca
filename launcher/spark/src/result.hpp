// Defines the format of a result in its descriptor: one byte for the kind, followed by the bytes of
// the result. The kind is 0 until the result is complete. launcher/spark/hvd_spark/result.py reads
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hvd {

enum class ResultKind : std::uint8_t { bytes = 'b', json = 'j' };

/// Replaces the content of `fd`, which is a file or a memfd. Throws what `set_result` throws.
void write_result(int fd, ResultKind kind, std::span<const std::byte> bytes);

}  // namespace hvd
