// Where the gradients of one reducer lie while they are reduced.
#pragma once

#include <memory>
#include <vector>

#include <torch/types.h>

#include <hvd/core/context.hpp>
#include <hvd/torch/gradient_memory.hpp>

#include "gradient_heap.hpp"

namespace hvd {

/// What has to be true before the engine may write to a gradient: no other tensor has its memory,
/// and its elements lie as the parameter's do, so as on every rank. And what makes it fast: it lies
/// in the arena. What is not so is copied, once.
class GradientHome {
 public:
  /// The parameters' gradients are expected while it lives, on the calling thread.
  GradientHome(GradientMemory memory, const Context& context,
               const std::vector<torch::Tensor>& parameters);
  ~GradientHome();
  GradientHome(const GradientHome&) = delete;
  GradientHome& operator=(const GradientHome&) = delete;

  /// The calling thread runs backward passes.
  void use_here() const;

  /// Makes `parameter.grad()`, which is defined and strided, fit, and counts what it took.
  /// `incoming` is what autograd still holds of it, or undefined. One thread at a time.
  void settle(const torch::Tensor& parameter, const torch::Tensor& incoming);
  /// Zeros that fit, for a parameter without a gradient.
  [[nodiscard]] torch::Tensor zeros_for(const torch::Tensor& parameter) const;
  /// `count` elements in a row, where they are reduced best.
  [[nodiscard]] torch::Tensor scratch(std::int64_t count,
                                      const torch::TensorOptions& options) const;

  [[nodiscard]] const GradientCounters& counters() const noexcept { return counters_; }

 private:
  /// Undefined when the parameter's gradient need not or cannot lie in the arena.
  [[nodiscard]] torch::Tensor in_arena(const torch::Tensor& parameter) const;
  [[nodiscard]] bool lies_well(const torch::Tensor& gradient) const;

  std::shared_ptr<GradientHeap> heap_;  ///< null: anywhere will do
  std::vector<std::size_t> expected_;
  bool born_there_ = false;
  GradientCounters counters_;
};

/// The memory of a tensor that fits, as a row of elements. Its changes do not count in
/// `_version()`.
[[nodiscard]] torch::Tensor elements_of(const torch::Tensor& gradient);

}  // namespace hvd
