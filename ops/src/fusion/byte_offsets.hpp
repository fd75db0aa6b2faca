// Counts as places in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd {

/// Offset in bytes of each part, and the size of all at the end.
[[nodiscard]] inline std::vector<std::size_t> byte_offsets(std::span<const std::int64_t> counts,
                                                           DType dtype) {
  std::vector<std::size_t> offsets{0};
  offsets.reserve(counts.size() + 1);
  for (const std::int64_t count : counts) {
    offsets.push_back(offsets.back() + static_cast<std::size_t>(count) * size_of(dtype));
  }
  return offsets;
}

}  // namespace hvd
