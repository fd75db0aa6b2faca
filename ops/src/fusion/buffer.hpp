// Staging memory that is kept between operations.
#pragma once

#include <cstddef>
#include <memory>

namespace hvd {

/// Grows to the largest size asked for and stays there until it is destroyed. One thread.
class FusionBuffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  /// At least `size` bytes, aligned for SIMD; what was there before is lost. Throws Errc::resource.
  [[nodiscard]] std::byte* reserve(std::size_t size);
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace hvd
