// Decides where the gradients of one optimizer lie while they are reduced.
#pragma once

#include <memory>
#include <vector>

#include <torch/types.h>

#include <hvd/core/context.hpp>
#include <hvd/torch/gradient_reducer.hpp>

#include "gradients/gradient_allocator.hpp"

namespace hvd::detail {

/// The engine may write to a gradient only if no other tensor uses its memory and if it has the
/// strides of the parameter, which are the same on every rank. The reduction is fast if the
/// gradient lies in the arena. This class makes one copy of a gradient that does not meet these
/// conditions.
class GradientPlacement {
 public:
  /// From now on the calling thread allocates gradients of the parameters' sizes in the arena, if
  /// `memory` asks for it.
  GradientPlacement(GradientMemory memory, const Context& context,
                    const std::vector<torch::Tensor>& parameters);
  /// For parameters that are not known: from now on malloc keeps blocks of up to 32 MiB that are
  /// freed, and the calling thread allocates larger ones in the arena during backward passes.
  explicit GradientPlacement(const Context& context);
  ~GradientPlacement();
  GradientPlacement(const GradientPlacement&) = delete;
  GradientPlacement& operator=(const GradientPlacement&) = delete;

  /// Makes the calling thread, which runs backward passes, allocate gradients in the arena.
  void use_on_this_thread() const;

  /// Makes `parameter.grad()`, which is defined and dense, meet the conditions, and counts copies.
  /// `incoming` is the gradient that autograd still holds, or undefined. `in_engine` is the memory
  /// to which earlier reductions of the parameter's gradient still refer. One thread at a time
  /// calls it. If the program may keep the gradient or another tensor with its memory, it
  /// expects the result there. Then, if a copy has replaced the gradient, this returns the old one,
  /// and otherwise an undefined tensor.
  [[nodiscard]] torch::Tensor place(const torch::Tensor& parameter, const torch::Tensor& incoming,
                                    const std::weak_ptr<c10::Storage>& in_engine);
  /// Returns a gradient of zeros that meets the conditions.
  [[nodiscard]] torch::Tensor zeros_for(const torch::Tensor& parameter) const;
  /// Returns an uninitialised row of `count` elements, in the arena if there is room.
  [[nodiscard]] torch::Tensor empty_row(std::int64_t count,
                                        const torch::TensorOptions& options) const;

  [[nodiscard]] const GradientCounters& counters() const noexcept { return counters_; }

 private:
  /// Returns an undefined tensor when the parameter's gradient need not or cannot lie in the arena.
  [[nodiscard]] torch::Tensor empty_in_arena(const torch::Tensor& parameter) const;
  /// Returns whether the gradient lies in the arena, or need not.
  [[nodiscard]] bool lies_in_arena(const torch::Tensor& gradient) const;

  std::shared_ptr<GradientHeap> heap_;  ///< null when gradients need not lie in the arena
  std::vector<std::size_t> expected_;
  bool uses_allocator_ = false;  ///< autograd allocates gradients in the heap
  GradientCounters counters_;
};

/// Returns the memory of a gradient that has been placed, as a row of elements. Changes of the row
/// do not count in the gradient's `_version()`.
[[nodiscard]] torch::Tensor elements_of(const torch::Tensor& gradient);

}  // namespace hvd::detail
