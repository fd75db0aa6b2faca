// Allocates gradients in the arena of a context, in place of LibTorch's CPU allocator.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <shared_mutex>
#include <vector>

#include <c10/core/Allocator.h>
#include <torch/types.h>

#include <hvd/core/arena.hpp>
#include <hvd/core/internal/splitmix64.hpp>

namespace hvd::detail {

/// The gradients that lie in one arena. It knows the sizes of the gradients that are expected, and
/// counts the blocks that are allocated. Any thread may use it.
class GradientHeap : public std::enable_shared_from_this<GradientHeap> {
 public:
  explicit GradientHeap(std::shared_ptr<Arena> arena) noexcept : arena_(std::move(arena)) {}

  void expect(std::size_t bytes) noexcept { ++expected_[hash_of(bytes)]; }
  void forget(std::size_t bytes) noexcept { --expected_[hash_of(bytes)]; }
  /// From now on every larger size is expected.
  void expect_all_above(std::size_t bytes) noexcept { all_above_ = bytes; }
  /// Returns true for every size that is expected, and for other sizes with the same hash. Then a
  /// tensor that is not a gradient is allocated in the arena, which does no harm.
  [[nodiscard]] bool expects(std::size_t bytes) const noexcept {
    return bytes > all_above_.load(std::memory_order_relaxed) ||
           expected_[hash_of(bytes)].load(std::memory_order_relaxed) > 0;
  }

  /// Returns null when the arena has no room.
  [[nodiscard]] void* allocate(std::size_t bytes) noexcept;
  void deallocate(void* memory) noexcept;
  [[nodiscard]] bool contains(const void* memory, std::size_t bytes) const noexcept {
    return arena_->contains(memory, bytes);
  }
  /// Returns an uninitialised dense CPU tensor, or an undefined one when the arena has no room.
  [[nodiscard]] torch::Tensor empty(torch::IntArrayRef sizes, torch::IntArrayRef strides,
                                    torch::ScalarType dtype);

  // `GradientAllocator` calls these.
  void begin_use() noexcept { ++users_; }
  void end_use() noexcept { --users_; }
  /// Returns whether nobody uses the heap and all its blocks have been deallocated.
  [[nodiscard]] bool idle() const noexcept { return users_ == 0 && blocks_ == 0; }
  [[nodiscard]] const std::shared_ptr<Arena>& arena() const noexcept { return arena_; }

 private:
  static constexpr std::size_t kHashes = 1024;
  static std::size_t hash_of(std::size_t bytes) noexcept {
    return (bytes / sizeof(std::int16_t) * kGoldenRatio64) >> 54;
  }

  const std::shared_ptr<Arena> arena_;
  std::array<std::atomic<int>, kHashes> expected_{};  ///< by hash of the size
  std::atomic<std::size_t> all_above_{std::numeric_limits<std::size_t>::max()};
  std::atomic<int> users_{0};
  std::atomic<int> blocks_{0};
};

/// The only allocator of this kind in the process. It replaces LibTorch's own until the process
/// ends. A request during a backward pass gets memory of the thread's heap if the heap expects its
/// size. All other requests are passed on to the allocator that was there before.
/// docs/reference/torch.md says what that costs.
class GradientAllocator final : public c10::Allocator {
 public:
  /// Returns the allocator. The first call puts it in place of the existing allocator.
  static GradientAllocator& installed();

  /// Returns the heap of an arena, and makes it when there is none. Every call must be paired with
  /// a call of `release`.
  [[nodiscard]] std::shared_ptr<GradientHeap> acquire(const std::shared_ptr<Arena>& arena);
  void release(const std::shared_ptr<GradientHeap>& heap) noexcept;
  /// From now on the calling thread allocates gradients in `heap`, which has been acquired.
  static void use_on_this_thread(const std::shared_ptr<GradientHeap>& heap);

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &deallocate; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  explicit GradientAllocator(c10::Allocator& before);
  static void deallocate(void* memory);
  /// Drops the heaps that nobody uses and that have no blocks.
  void drop_idle_heaps() noexcept;

  c10::Allocator& before_;
  const c10::DeleterFnPtr delete_before_;
  std::shared_mutex mutex_;
  std::vector<std::shared_ptr<GradientHeap>> heaps_;
};

}  // namespace hvd::detail
