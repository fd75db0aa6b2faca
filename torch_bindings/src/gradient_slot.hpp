// One parameter of a `GradientReducer`.
#pragma once

#include <cstdint>
#include <string>

#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <hvd/torch/tensor_work.hpp>

namespace hvd {

/// Called on autograd's thread when a parameter's gradient has been accumulated.
class GradientListener {
 public:
  virtual ~GradientListener() = default;
  virtual void on_gradient(std::size_t index) = 0;
};

/// The hook on a parameter's gradient accumulator, removed with this object.
class GradientHook {
 public:
  GradientHook() = default;
  ~GradientHook() { remove(); }
  GradientHook(const GradientHook&) = delete;
  GradientHook& operator=(const GradientHook&) = delete;

  /// Does nothing while the parameter's accumulator is the one already hooked, or while the
  /// parameter requires no gradient. LibTorch makes a new accumulator when a parameter's data
  /// moves to another dtype or device.
  void attach(const torch::Tensor& parameter, GradientListener& listener, std::size_t index);

 private:
  void remove() noexcept;

  // Its type is shared_ptr<Node> or an intrusive pointer, by LibTorch's version. The tensor holds
  // it weakly: without this owner it dies with its hook before the next forward pass.
  decltype(torch::autograd::impl::grad_accumulator(
      std::declval<const torch::Tensor&>())) accumulator_;
  std::uintptr_t key_ = 0;
};

struct GradientSlot {
  std::string name;        ///< as the user named the parameter
  std::string collective;  ///< as the ranks name its reduction
  torch::Tensor parameter;
  GradientHook hook;

  bool takes_part = false;  ///< has required a gradient at some step
  int passes = 0;           ///< backward passes since the last synchronisation
  bool in_flight = false;
  TensorWork work;
  torch::Tensor gradient;    ///< what was submitted
  std::int64_t version = 0;  ///< of `gradient` when it was submitted
};

}  // namespace hvd
