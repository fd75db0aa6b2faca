// Do all ranks hold the same?
#pragma once

#include <string>

#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>

#include <hvd/core/context.hpp>
#include <hvd/torch/named_tensors.hpp>

namespace hvd {

struct Verification {
  bool identical = false;
  /// The first tensor that differs, and on which ranks; empty when identical. Names are this
  /// rank's, all else is the same text on every rank.
  std::string first_difference;

  explicit operator bool() const noexcept { return identical; }
};

/// Compares names, dtypes, shapes and every bit of the tensors by a 64-bit digest each, of which
/// all ranks see all. Collective; any number of tensors may differ, also their count.
[[nodiscard]] Verification verify(Context& context, const NamedTensors& tensors);
[[nodiscard]] Verification verify(const NamedTensors& tensors);

/// Parameters and buffers of a module.
[[nodiscard]] Verification verify(Context& context, const torch::nn::Module& module);
[[nodiscard]] Verification verify(const torch::nn::Module& module);

/// The options of each group and the state of each parameter, of Adagrad, Adam, AdamW, LBFGS,
/// RMSprop, SGD and what derives from them; Errc::unsupported for others. Differences are named by
/// group and place: "state of parameter 2 of group 0".
[[nodiscard]] Verification verify(Context& context, torch::optim::Optimizer& optimizer);
[[nodiscard]] Verification verify(torch::optim::Optimizer& optimizer);

template <class Contained>
[[nodiscard]] Verification verify(const torch::nn::ModuleHolder<Contained>& module) {
  return verify(*module);
}

template <class Contained>
[[nodiscard]] Verification verify(Context& context,
                                  const torch::nn::ModuleHolder<Contained>& module) {
  return verify(context, *module);
}

}  // namespace hvd
