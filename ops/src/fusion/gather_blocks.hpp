// A fused allgather as one block of bytes per rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <hvd/core/backend.hpp>

#include "fusion/copy_bytes.hpp"

namespace hvd {

/// Block r holds what rank r contributes to each tensor, one after the other. For a single tensor
/// that is how its output lies in memory.
class GatherBlocks {
 public:
  GatherBlocks(const AllgatherCall& call, int ranks);

  /// In bytes: one more than ranks.
  [[nodiscard]] std::span<const std::int64_t> bounds() const noexcept { return bounds_; }
  [[nodiscard]] std::int64_t total() const noexcept { return bounds_.back(); }

  /// This rank's inputs to its block of `data`, unless they are there already.
  void pack(const AllgatherCall& call, int rank, std::byte* data, const ByteCopy& copy) const;
  /// All blocks to the outputs.
  void unpack(const AllgatherCall& call, const std::byte* data, const ByteCopy& copy) const;

 private:
  std::int64_t element_;
  std::vector<std::int64_t> bounds_;
};

}  // namespace hvd
