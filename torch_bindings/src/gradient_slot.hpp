// One parameter of a `GradientReducer`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <hvd/core/work.hpp>
#include <hvd/torch/gradient_compressor.hpp>
#include <hvd/torch/sparse.hpp>

namespace hvd {

/// Called on autograd's thread when a parameter's gradient has been accumulated.
class GradientListener {
 public:
  virtual ~GradientListener() = default;
  /// `incoming`: what autograd added to it, and holds until this returns.
  virtual void on_gradient(std::size_t index, const torch::Tensor& incoming) = 0;
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
  /// Whether some optimizer of hvd has its hook on the parameter.
  [[nodiscard]] static bool is_on(const torch::Tensor& parameter);

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
  int group = -1;

  std::unique_ptr<CompressedGradient> compressor;  ///< null: reduced as it is

  bool takes_part = false;   ///< has required a gradient at some step
  int passes = 0;            ///< backward passes since the last synchronisation
  bool in_flight = false;    ///< given away: to the context, or to its group
  torch::Tensor gradient;    ///< what is being reduced
  std::int64_t version = 0;  ///< of `gradient` when it was given away

  // One of these is on its way; none while the group is incomplete.
  Work work;
  std::optional<SparseWork> sparse_work;
  bool compressing = false;

  torch::Tensor row;       ///< of `work`: the gradient's elements, or them in another type
  bool cast = false;       ///< the latter
  bool is_sparse = false;  ///< the gradients are, and not made dense
};

}  // namespace hvd
