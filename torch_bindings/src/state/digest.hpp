// Computes a 64-bit digest of values, which is the same on every machine. It detects differences by
// accident and gives no security.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <torch/types.h>

#include <hvd/core/internal/splitmix64.hpp>

namespace hvd::detail {

class Digest {
 public:
  void add(std::uint64_t value) noexcept;
  void add(std::string_view text) noexcept;
  /// Adds elements of `element_size` bytes (1, 2, 4 or 8) by value, so that the byte order of the
  /// machine does not matter.
  void add_elements(std::span<const std::byte> bytes, std::size_t element_size) noexcept;
  /// Adds the tensor's dtype and shape.
  void add_kind(const torch::Tensor& tensor) noexcept;
  /// Adds every bit of the tensor's elements, in row-major order. The tensor is dense.
  void add_values(const torch::Tensor& tensor);

  /// Adds the tensor's first and last element if it is dense and in host memory, which takes no
  /// time worth mentioning.
  void add_corners(const torch::Tensor& tensor) noexcept;

  [[nodiscard]] std::uint64_t value() const noexcept { return state_; }

 private:
  std::uint64_t state_ = kGoldenRatio64;
};

}  // namespace hvd::detail
