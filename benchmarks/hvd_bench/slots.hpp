// Buffers that iterations take in turn, so that caches do not flatter: together at least 64 MiB,
// more than the caches of most machines hold, or as many as make sense.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace hvd::bench {

class Slots {
 public:
  static constexpr std::size_t kTotal = std::size_t{64} << 20;
  static constexpr std::size_t kMost = 65'536;  ///< a cache line each is 4 MiB
  static constexpr std::size_t kLine = 64;

  /// Zeroed, and so already mapped.
  explicit Slots(std::size_t size)
      : stride_((std::max<std::size_t>(size, 1) + kLine - 1) / kLine * kLine),
        memory_(stride_ * count(size)) {}

  [[nodiscard]] static std::size_t count(std::size_t size) {
    return std::clamp<std::size_t>(kTotal / std::max(size, kLine), 1, kMost);
  }
  [[nodiscard]] std::byte* operator[](std::size_t iteration) {
    return memory_.data() + iteration % (memory_.size() / stride_) * stride_;
  }

 private:
  std::size_t stride_;
  std::vector<std::byte> memory_;
};

}  // namespace hvd::bench
