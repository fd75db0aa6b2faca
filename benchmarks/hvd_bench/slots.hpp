// Holds buffers that iterations use in turn, so that data is not always in the caches. Together
// they have at least 64 MiB, which is more than most caches hold, or there are `kMost` of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <hvd/core/arena.hpp>

namespace hvd::bench {

class Slots {
 public:
  static constexpr std::size_t kTotal = std::size_t{64} << 20;
  static constexpr std::size_t kMost = 65'536;  ///< with a cache line each this is 4 MiB
  static constexpr std::size_t kLine = 64;

  /// Allocates zeroed and therefore mapped memory, in `arena` unless that is null. Throws
  /// std::runtime_error when the arena is too small.
  explicit Slots(std::size_t size, std::shared_ptr<Arena> arena = nullptr)
      : stride_((std::max<std::size_t>(size, 1) + kLine - 1) / kLine * kLine),
        count_(count(size)),
        arena_(std::move(arena)) {
    const std::size_t bytes = stride_ * count_;
    if (!arena_) {
      private_.resize(bytes);
      data_ = private_.data();
      return;
    }
    data_ = static_cast<std::byte*>(arena_->allocate(bytes));
    if (data_ == nullptr) throw std::runtime_error("HVD_ARENA_SIZE is too small for --arena");
    std::memset(data_, 0, bytes);
  }
  ~Slots() {
    if (arena_) arena_->deallocate(data_);
  }
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  [[nodiscard]] static std::size_t count(std::size_t size) {
    return std::clamp<std::size_t>(kTotal / std::max(size, kLine), 1, kMost);
  }
  [[nodiscard]] std::byte* operator[](std::size_t iteration) {
    return data_ + iteration % count_ * stride_;
  }

 private:
  std::size_t stride_;
  std::size_t count_;
  std::shared_ptr<Arena> arena_;
  std::vector<std::byte> private_;
  std::byte* data_ = nullptr;
};

}  // namespace hvd::bench
