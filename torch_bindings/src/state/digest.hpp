// Computes a 64-bit digest of values, which is the same on every machine. It detects differences by
// accident and gives no security.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <torch/types.h>

namespace hvd::detail {

/// Applies the finaliser of SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom
/// number generators"), which is a bijection.
[[nodiscard]] constexpr std::uint64_t splitmix64(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

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

  [[nodiscard]] std::uint64_t value() const noexcept { return state_; }

 private:
  std::uint64_t state_ = 0x9e3779b97f4a7c15;
};

}  // namespace hvd::detail
