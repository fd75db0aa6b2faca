// A reduction of contiguous memory, one chunk per rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fusion/accumulator.hpp"

namespace hvd {

struct Reduction {
  Accumulator elements;
  std::span<const std::int64_t> bounds;  ///< of the chunks, in elements: one more than ranks
  const std::byte* own = nullptr;        ///< this rank's contribution to all chunks
  std::byte* result = nullptr;           ///< may be where `own` has it

  [[nodiscard]] std::int64_t count(int chunk) const noexcept {
    const auto k = static_cast<std::size_t>(chunk);
    return bounds[k + 1] - bounds[k];
  }
  /// In bytes, of chunk `chunk` in `own`.
  [[nodiscard]] std::size_t offset(int chunk) const noexcept {
    return static_cast<std::size_t>(bounds[static_cast<std::size_t>(chunk)]) *
           elements.element_size();
  }
  [[nodiscard]] std::size_t size(int chunk) const noexcept {
    return static_cast<std::size_t>(count(chunk)) * elements.element_size();
  }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(bounds.back()) * elements.element_size();
  }
};

}  // namespace hvd
