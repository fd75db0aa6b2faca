// What backward() does for each collective: the gradient of the sum of all ranks' losses.
#pragma once

#include <hvd/core/context.hpp>
#include <hvd/torch/grouped_collectives.hpp>

#include "collective_autograd.hpp"

namespace hvd {

// For one tensor or a group of them. Each is made in the forward pass and may keep shapes, not
// tensors. They call the forms that autograd records, so gradients of gradients work.

[[nodiscard]] Backward allreduce_backward(Context& context, const AllreduceOptions& options,
                                          Compression compression);
[[nodiscard]] Backward broadcast_backward(Context& context, int root,
                                          const CollectiveOptions& options);
/// `inputs`: for how many rows are this rank's.
[[nodiscard]] Backward allgather_backward(Context& context, const Tensors& inputs,
                                          const CollectiveOptions& options);
[[nodiscard]] Backward reducescatter_backward(Context& context, const AllreduceOptions& options);
/// `received` is filled in by the forward pass.
[[nodiscard]] Backward alltoall_backward(Context& context, std::shared_ptr<SplitsOfEach> received,
                                         const CollectiveOptions& options);

}  // namespace hvd
