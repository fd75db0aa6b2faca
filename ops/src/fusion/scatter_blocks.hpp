// A fused reducescatter as one block of elements per rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <hvd/core/backend.hpp>

#include "fusion/layout.hpp"

namespace hvd {

/// Block r holds rank r's part of every tensor, one after the other. For a single tensor that is
/// how its input lies in memory. `tensors` outlive the object.
class ScatterBlocks {
 public:
  ScatterBlocks(std::span<const ScatterSlice> tensors, int ranks);

  /// In elements: one more than ranks.
  [[nodiscard]] std::span<const std::int64_t> bounds() const noexcept { return bounds_; }
  [[nodiscard]] std::int64_t total() const noexcept { return bounds_.back(); }
  [[nodiscard]] Range block(int rank) const noexcept {
    const auto r = static_cast<std::size_t>(rank);
    return {bounds_[r], bounds_[r + 1]};
  }

  /// fn(std::size_t tensor, Range of its input, std::int64_t offset in the buffer), by offset.
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

  /// fn(std::size_t tensor, std::int64_t offset in the rank's block, std::int64_t count).
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

}  // namespace hvd
