// Declares collectives that autograd records. Their backward functions compute the gradient of the
// sum of all ranks' losses.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <hvd/core/context.hpp>
#include <hvd/torch/grouped_collectives.hpp>

namespace hvd::detail {

/// Computes the results from the inputs. It is called without gradient recording.
using Forward = std::function<Tensors()>;
/// Computes the gradients of the inputs from those of the results. A result without a gradient has
/// zeros.
using Backward = std::function<Tensors(const Tensors& gradients)>;

/// Returns whether autograd records what is computed from these tensors now.
[[nodiscard]] bool is_recorded(const Tensors& inputs);
/// Calls `forward` and returns its results. `backward` is called in the backward pass.
[[nodiscard]] Tensors record(const Tensors& inputs, const Forward& forward, Backward backward);

// These functions, for one tensor or a group, make a backward function in the forward pass. It
// keeps shapes and no tensors, and calls collectives that autograd records, so that second
// derivatives work.

[[nodiscard]] Backward allreduce_backward(const AllreduceOptions& options, Compression compression);
[[nodiscard]] Backward broadcast_backward(int root, const CollectiveOptions& options);
/// The rows of `inputs` are the part of the results that comes from this rank.
[[nodiscard]] Backward allgather_backward(const Tensors& inputs, const CollectiveOptions& options);
[[nodiscard]] Backward reducescatter_backward(const AllreduceOptions& options);
/// The forward pass writes the received splits into `received`.
[[nodiscard]] Backward alltoall_backward(const std::shared_ptr<SplitsOfEach>& received,
                                         const CollectiveOptions& options);

}  // namespace hvd::detail
