// Bytes from here to there.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>

namespace hvd {

/// Where `size` is 0 both may be null; nothing is done when they are equal, else they do not
/// overlap.
using ByteCopy = std::function<void(std::byte* dst, const std::byte* src, std::size_t size)>;

/// In host memory.
inline void copy_bytes(std::byte* dst, const std::byte* src, std::size_t size) {
  if (size > 0 && dst != src) std::memcpy(dst, src, size);
}

}  // namespace hvd
