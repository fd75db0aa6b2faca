// Copies the state of an optimizer in memory.
#pragma once

#include <vector>

#include <torch/optim/optimizer.h>

#include <hvd/core/types.hpp>

namespace hvd::detail {

/// Holds the options and the state of an optimizer of LibTorch, without its parameters.
struct OptimizerCopy {
  Bytes fields;
  std::vector<torch::Tensor> tensors;
};

/// Throws Errc::unsupported for an optimizer that is not one of LibTorch's.
[[nodiscard]] OptimizerCopy copy_of(torch::optim::Optimizer& optimizer);
/// Gives the optimizer the state of a copy that was made of it.
void restore(torch::optim::Optimizer& optimizer, const OptimizerCopy& copy);

}  // namespace hvd::detail
