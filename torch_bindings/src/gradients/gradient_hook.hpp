// Calls back when autograd accumulates a parameter's gradient.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

namespace hvd::detail {

/// The hooks of a parameter call these members, on the thread that autograd runs them on.
class GradientListener {
 public:
  virtual ~GradientListener() = default;
  /// Called before a backward pass adds to the parameter's gradient. An exception makes
  /// `backward()` throw it, and nothing is added.
  virtual void before_gradient(std::size_t /*index*/) {}
  /// Called after autograd has accumulated the gradient. `incoming` is the tensor that it has
  /// added, which is valid until this returns.
  virtual void on_gradient(std::size_t index, const torch::Tensor& incoming) = 0;
};

/// The hooks on a parameter's gradient accumulator. When the parameter's data moves to another
/// dtype or device, LibTorch makes a new accumulator, which gets the hooks in the next backward
/// pass. The destructor removes them.
class GradientHook {
 public:
  GradientHook() = default;
  ~GradientHook() { remove(); }
  GradientHook(const GradientHook&) = delete;
  GradientHook& operator=(const GradientHook&) = delete;

  /// A frozen parameter gets the hooks too, so that they run once it requires a gradient. Does
  /// nothing when the parameter's accumulator has the hooks already.
  void attach(const torch::Tensor& parameter, GradientListener& listener, std::size_t index);
  /// Returns whether any optimizer of hvd has its hooks on the parameter.
  [[nodiscard]] static bool is_on(const torch::Tensor& parameter);

 private:
  void remove() noexcept;
  void remove_from_accumulator() noexcept;

  // The type is shared_ptr<Node> or an intrusive pointer, depending on LibTorch's version. The
  // tensor holds only a weak pointer to its accumulator, so without this member the accumulator and
  // its hooks would be destroyed before the next forward pass.
  decltype(torch::autograd::impl::grad_accumulator(
      std::declval<const torch::Tensor&>())) accumulator_;
  const torch::autograd::FunctionPreHook* before_ = nullptr;  ///< owned by the accumulator
  std::uintptr_t key_ = 0;
  torch::Tensor parameter_;  ///< undefined when no hook is attached
};

}  // namespace hvd::detail
