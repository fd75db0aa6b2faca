// Holds staging memory that is kept between operations.
#pragma once

#include <cstddef>
#include <memory>

namespace hvd::detail {

/// Grows to the largest size asked for and keeps it until it is destroyed. One thread at a time may
/// call it.
class FusionBuffer {
 public:
  static constexpr std::size_t kAlignment = 64;
  /// Rounds an offset up to one that is aligned for SIMD.
  [[nodiscard]] static constexpr std::size_t aligned(std::size_t bytes) noexcept {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  /// Returns at least `size` bytes, aligned for SIMD, with unspecified content. Throws
  /// Errc::resource.
  [[nodiscard]] std::byte* reserve(std::size_t size);
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace hvd::detail
