// Lays fused tensors out as one block per rank, for allgather and reducescatter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include <hvd/core/internal/backend.hpp>

#include "fusion/layout.hpp"

namespace hvd::detail {

/// Copies bytes. Both pointers may be null where `size` is 0. If they are equal nothing is done;
/// otherwise the memory does not overlap.
using ByteCopy = std::function<void(std::byte* dst, const std::byte* src, std::size_t size)>;

/// Copies within host memory.
inline void copy_bytes(std::byte* dst, const std::byte* src, std::size_t size) {
  if (size > 0 && dst != src) std::memcpy(dst, src, size);
}

/// Returns the offset of each part in bytes, and the size of all parts at the end.
[[nodiscard]] inline std::vector<std::size_t> byte_offsets(std::span<const std::int64_t> counts,
                                                           DType dtype) {
  std::vector<std::size_t> offsets{0};
  offsets.reserve(counts.size() + 1);
  for (const std::int64_t count : counts) {
    offsets.push_back(offsets.back() + bytes_of(count, dtype));
  }
  return offsets;
}

/// Lays a fused allgather out as one block of bytes per rank. Block r holds what rank r contributes
/// to each tensor, one after the other. A single tensor's output lies in memory in this way
/// already.
class GatherBlocks {
 public:
  GatherBlocks(const AllgatherCall& call, int ranks);

  /// Returns where each block begins in bytes, and where the last one ends.
  [[nodiscard]] std::span<const std::int64_t> bounds() const noexcept { return bounds_; }
  [[nodiscard]] std::int64_t total() const noexcept { return bounds_.back(); }

  /// Copies this rank's inputs to its block of `data`, unless they are there already.
  void pack(const AllgatherCall& call, int rank, std::byte* data, const ByteCopy& copy) const;
  /// Copies all blocks to the outputs.
  void unpack(const AllgatherCall& call, const std::byte* data, const ByteCopy& copy) const;

 private:
  std::int64_t element_;
  std::vector<std::int64_t> bounds_;
};

/// Lays a fused reducescatter out as one block of elements per rank. Block r holds rank r's part of
/// every tensor, one after the other. A single tensor's input lies in memory in this way already.
/// `tensors` outlive the object.
class ScatterBlocks {
 public:
  ScatterBlocks(std::span<const ScatterSlice> tensors, int ranks);

  /// Returns where each block begins in elements, and where the last one ends.
  [[nodiscard]] std::span<const std::int64_t> bounds() const noexcept { return bounds_; }
  [[nodiscard]] std::int64_t total() const noexcept { return bounds_.back(); }
  [[nodiscard]] Range block(int rank) const noexcept {
    const auto r = static_cast<std::size_t>(rank);
    return {bounds_[r], bounds_[r + 1]};
  }

  /// Calls fn(std::size_t tensor, Range of its input, std::int64_t offset in the buffer) for each
  /// part, by offset.
  template <class Fn>
  void for_each_part(Fn fn) const {
    std::vector<std::int64_t> taken(tensors_.size(), 0);
    std::int64_t offset = 0;
    for (std::size_t rank = 0; rank + 1 < bounds_.size(); ++rank) {
      for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
        const Range part{taken[tensor], taken[tensor] + tensors_[tensor].counts[rank]};
        if (part.size() == 0) continue;
        fn(tensor, part, offset);
        taken[tensor] = part.end;
        offset += part.size();
      }
    }
  }

  /// Calls fn(std::size_t tensor, std::int64_t offset in the rank's block, std::int64_t count) for
  /// each tensor of which the rank has a part.
  template <class Fn>
  void for_each_result(int rank, Fn fn) const {
    std::int64_t offset = 0;
    for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
      const std::int64_t count = tensors_[tensor].counts[static_cast<std::size_t>(rank)];
      if (count > 0) fn(tensor, offset, count);
      offset += count;
    }
  }

 private:
  std::span<const ScatterSlice> tensors_;
  std::vector<std::int64_t> bounds_;
};

}  // namespace hvd::detail
