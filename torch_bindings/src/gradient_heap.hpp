// The part of a context's arena that gradients live in.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <torch/types.h>

#include <hvd/core/arena.hpp>

namespace hvd {

/// Knows the sizes of the gradients that are expected, and how much of the arena it has given away.
/// Any thread.
class GradientHeap : public std::enable_shared_from_this<GradientHeap> {
 public:
  explicit GradientHeap(std::shared_ptr<Arena> arena) noexcept : arena_(std::move(arena)) {}

  void expect(std::size_t bytes) noexcept { ++wanted_[slot_of(bytes)]; }
  void forget(std::size_t bytes) noexcept { --wanted_[slot_of(bytes)]; }
  /// True for every size that is expected, and now and then for another, which does no harm.
  [[nodiscard]] bool expects(std::size_t bytes) const noexcept {
    return wanted_[slot_of(bytes)].load(std::memory_order_relaxed) > 0;
  }

  /// Null when there is no room.
  [[nodiscard]] void* allocate(std::size_t bytes) noexcept;
  void deallocate(void* memory) noexcept;
  [[nodiscard]] bool contains(const void* memory, std::size_t bytes) const noexcept {
    return arena_->contains(memory, bytes);
  }
  /// A dense CPU tensor; uninitialised. Undefined when there is no room.
  [[nodiscard]] torch::Tensor empty(torch::IntArrayRef sizes, torch::IntArrayRef strides,
                                    torch::ScalarType dtype);

  // By `GradientAllocator`.
  void begin_use() noexcept { ++users_; }
  void end_use() noexcept { --users_; }
  /// Nobody uses it and nothing is out.
  [[nodiscard]] bool idle() const noexcept { return users_ == 0 && out_ == 0; }
  [[nodiscard]] const std::shared_ptr<Arena>& arena() const noexcept { return arena_; }

 private:
  static constexpr std::size_t kSlots = 1024;
  static std::size_t slot_of(std::size_t bytes) noexcept {
    return (bytes / sizeof(std::int16_t) * 0x9E3779B97F4A7C15ULL) >> 54;
  }

  const std::shared_ptr<Arena> arena_;
  std::array<std::atomic<int>, kSlots> wanted_{};
  std::atomic<int> users_{0};
  std::atomic<int> out_{0};
};

}  // namespace hvd
