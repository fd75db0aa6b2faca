// Checks that all ranks hold the same tensors, and that their samplers fit together.
#pragma once

#include <string>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <hvd/ops/default_context.hpp>
#include <hvd/torch/named_tensors.hpp>

namespace hvd {

class DistributedSampler;
class ElasticSampler;

struct Verification {
  bool identical = false;
  /// Names the first tensor that differs and the ranks on which it does; empty when all tensors are
  /// identical. The text is the same on every rank, except that it gives the tensor the name that
  /// it has on this rank.
  std::string first_difference;

  explicit operator bool() const noexcept { return identical; }
};

/// Compares names, dtypes, shapes and every bit of the tensors by a 64-bit digest of each, which
/// all ranks exchange. Ranks may have different numbers of tensors. Collective.
[[nodiscard]] Verification verify(const NamedTensors& tensors, Context& context = hvd::context());

/// Compares the parameters and buffers of a module. Buffers, such as the running statistics of
/// batch normalization, differ after training unless the program makes them equal;
/// `first_difference` calls one "buffer <name>".
[[nodiscard]] Verification verify(const torch::nn::Module& module,
                                  Context& context = hvd::context());
[[nodiscard]] Verification verify(const torch::jit::Module& module,
                                  Context& context = hvd::context());

/// Compares the options of each group and the state of each parameter of an Adagrad, Adam, AdamW,
/// LBFGS, RMSprop or SGD, or of an optimizer that derives from one; throws Errc::unsupported for
/// others. A difference is named like "state of parameter 2 of group 0".
[[nodiscard]] Verification verify(torch::optim::Optimizer& optimizer,
                                  Context& context = hvd::context());

[[nodiscard]] Verification verify(const ModulePointer auto& module,
                                  Context& context = hvd::context()) {
  return verify(static_cast<const torch::nn::Module&>(*module), context);
}

/// Checks, for the pass that was begun last, that the ranks' shards have the same size and together
/// contain every example once. When the number of ranks does not divide that of the examples, fewer
/// examples than there are ranks may be missing (a DistributedSampler with `drop_last`) or occur
/// twice (all others). `first_difference` says what is wrong, with the same text on every rank.
/// Collective. Every rank receives all indices, so call this in the first epoch or in a test.
[[nodiscard]] Verification verify(const DistributedSampler& sampler,
                                  Context& context = hvd::context());
[[nodiscard]] Verification verify(const ElasticSampler& sampler, Context& context = hvd::context());

}  // namespace hvd
