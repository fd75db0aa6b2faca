// LibTorch's CPU allocator, but that gradients are born in the memory that ranks share.
#pragma once

#include <memory>
#include <shared_mutex>
#include <vector>

#include <c10/core/Allocator.h>

#include "gradient_heap.hpp"

namespace hvd {

/// One for the process, as LibTorch's own, and for the rest of its life. What a thread allocates
/// during a backward pass in the sizes that its heap expects comes from that heap; everything else
/// is left to the allocator that was there before. What it costs those: docs/torch.md.
class GradientAllocator final : public c10::Allocator {
 public:
  /// The first call puts it in front of the allocator that is there.
  static GradientAllocator& installed();

  /// The heap of an arena, made when there is none, until as many calls of `release`.
  [[nodiscard]] std::shared_ptr<GradientHeap> acquire(const std::shared_ptr<Arena>& arena);
  void release(const std::shared_ptr<GradientHeap>& heap) noexcept;
  /// From now on the calling thread's gradients are born in `heap`.
  static void use_here(const std::shared_ptr<GradientHeap>& heap);

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  explicit GradientAllocator(c10::Allocator& before);
  static void give_back(void* memory);
  /// Those that nobody uses any more and that have got everything back.
  void drop_idle() noexcept;

  c10::Allocator& before_;
  const c10::DeleterFnPtr delete_before_;
  std::shared_mutex mutex_;
  std::vector<std::shared_ptr<GradientHeap>> heaps_;
};

}  // namespace hvd
