// Declares a model whose backward passes average the gradients of all ranks.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <hvd/torch/gradient_reducer.hpp>
#include <hvd/torch/named_tensors.hpp>

namespace hvd {

/// `hvd::DistributedDataParallel ddp(model);` makes every backward pass through the module average
/// its gradients over all ranks. Nothing else changes: the program calls the module itself, and its
/// optimizers, schedulers, closures and checkpoints stay as they are.
///
/// The constructor is collective. It gives all ranks the parameters and buffers of rank 0. A
/// backward pass that gives any of the parameters a gradient is collective too: it waits until the
/// gradients are reduced, and then gives all ranks the buffers of rank 0 (`broadcast_buffers`), so
/// that the ranks evaluate alike and save the same. Where a rank's pass may use
/// none of the parameters, every rank calls `synchronize()` after each pass. `backward()` throws
/// the error of a collective, or Errc::invalid_argument for misuse.
///
/// The parameters may move to another dtype or device, on all ranks alike. When the module has got,
/// lost or replaced a parameter, the next pass throws Errc::invalid_argument. The module must
/// outlive this object, whose destructor removes the hooks. The engine's steps (`Stats::step`) are
/// the reducing passes.
class DistributedDataParallel {
 public:
  /// The option `adasum` needs a `DistributedOptimizer`.
  explicit DistributedDataParallel(const torch::nn::Module& module,
                                   const DistributedOptimizerOptions& options = {})
      : reducer_(module, options) {}
  template <ModulePointer Pointer>
  explicit DistributedDataParallel(const Pointer& module,
                                   const DistributedOptimizerOptions& options = {})
      : DistributedDataParallel(static_cast<const torch::nn::Module&>(*module), options) {}
  /// Takes a TorchScript module, which this object shares and which therefore need not outlive it.
  explicit DistributedDataParallel(const torch::jit::Module& module,
                                   const DistributedOptimizerOptions& options = {})
      : reducer_(module, options) {}

  /// Gives this rank's gradients of the next reduction a weight, as `DistributedOptimizer` does.
  void set_weight(double weight) { reducer_.set_weight(weight); }
  /// Takes part in the pass of the other ranks, unless a backward pass of this rank has done so
  /// since the last call. Collective.
  void synchronize() { reducer_.finish_pass(); }
  /// While the result lives, backward passes add to the gradients of this rank and send nothing.
  /// The first pass after it sends the sum.
  [[nodiscard]] ScopedPause no_sync() { return reducer_.no_sync(); }
  /// Returns how many gradients were copied. Must not be called during a backward pass.
  [[nodiscard]] const GradientCounters& gradient_counters() const {
    return reducer_.gradient_counters();
  }

 private:
  detail::GradientReducer reducer_;
};

}  // namespace hvd
