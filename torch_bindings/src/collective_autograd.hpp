// Collectives that autograd records.
#pragma once

#include <functional>
#include <vector>

#include <torch/types.h>

namespace hvd {

using Tensors = std::vector<torch::Tensor>;

/// Makes the results of the inputs; called without gradient recording.
using Forward = std::function<Tensors()>;
/// The gradients of the inputs, from those of the results (zeros where there is none).
using Backward = std::function<Tensors(const Tensors& gradients)>;

/// Whether autograd records what is computed from these now.
[[nodiscard]] bool is_recorded(const Tensors& inputs);
/// The results of `forward`, for which autograd calls `backward`.
[[nodiscard]] Tensors record(const Tensors& inputs, const Forward& forward, Backward backward);

}  // namespace hvd
