// The forms of the collectives that use the default context.
#include <hvd/hvd.hpp>
#include <hvd/torch/grouped_collectives.hpp>

namespace hvd {

torch::Tensor allreduce(const torch::Tensor& tensor, const AllreduceOptions& options,
                        Compression compression) {
  return allreduce(context(), tensor, options, compression);
}

TensorWork allreduce_async(const torch::Tensor& tensor, const AllreduceOptions& options,
                           Compression compression) {
  return allreduce_async(context(), tensor, options, compression);
}

torch::Tensor allreduce_(const torch::Tensor& tensor, const AllreduceOptions& options,
                         Compression compression) {
  return allreduce_(context(), tensor, options, compression);
}

TensorWork allreduce_async_(const torch::Tensor& tensor, const AllreduceOptions& options,
                            Compression compression) {
  return allreduce_async_(context(), tensor, options, compression);
}

torch::Tensor allgather(const torch::Tensor& tensor, const CollectiveOptions& options) {
  return allgather(context(), tensor, options);
}

TensorWork allgather_async(const torch::Tensor& tensor, const CollectiveOptions& options) {
  return allgather_async(context(), tensor, options);
}

torch::Tensor broadcast(const torch::Tensor& tensor, int root, const CollectiveOptions& options) {
  return broadcast(context(), tensor, root, options);
}

TensorWork broadcast_async(const torch::Tensor& tensor, int root,
                           const CollectiveOptions& options) {
  return broadcast_async(context(), tensor, root, options);
}

torch::Tensor broadcast_(const torch::Tensor& tensor, int root, const CollectiveOptions& options) {
  return broadcast_(context(), tensor, root, options);
}

TensorWork broadcast_async_(const torch::Tensor& tensor, int root,
                            const CollectiveOptions& options) {
  return broadcast_async_(context(), tensor, root, options);
}

torch::Tensor reducescatter(const torch::Tensor& tensor, const AllreduceOptions& options,
                            Compression compression) {
  return reducescatter(context(), tensor, options, compression);
}

TensorWork reducescatter_async(const torch::Tensor& tensor, const AllreduceOptions& options,
                               Compression compression) {
  return reducescatter_async(context(), tensor, options, compression);
}

AlltoallResult alltoall(const torch::Tensor& tensor, torch::IntArrayRef splits,
                        const CollectiveOptions& options) {
  return alltoall(context(), tensor, splits, options);
}

AlltoallWork alltoall_async(const torch::Tensor& tensor, torch::IntArrayRef splits,
                            const CollectiveOptions& options) {
  return alltoall_async(context(), tensor, splits, options);
}

Tensors grouped_allreduce(const Tensors& tensors, const AllreduceOptions& options,
                          Compression compression) {
  return grouped_allreduce(context(), tensors, options, compression);
}

TensorGroupWork grouped_allreduce_async(const Tensors& tensors, const AllreduceOptions& options,
                                        Compression compression) {
  return grouped_allreduce_async(context(), tensors, options, compression);
}

Tensors grouped_allreduce_(const Tensors& tensors, const AllreduceOptions& options,
                           Compression compression) {
  return grouped_allreduce_(context(), tensors, options, compression);
}

TensorGroupWork grouped_allreduce_async_(const Tensors& tensors, const AllreduceOptions& options,
                                         Compression compression) {
  return grouped_allreduce_async_(context(), tensors, options, compression);
}

Tensors grouped_allgather(const Tensors& tensors, const CollectiveOptions& options) {
  return grouped_allgather(context(), tensors, options);
}

TensorGroupWork grouped_allgather_async(const Tensors& tensors, const CollectiveOptions& options) {
  return grouped_allgather_async(context(), tensors, options);
}

Tensors grouped_broadcast(const Tensors& tensors, int root, const CollectiveOptions& options) {
  return grouped_broadcast(context(), tensors, root, options);
}

TensorGroupWork grouped_broadcast_async(const Tensors& tensors, int root,
                                        const CollectiveOptions& options) {
  return grouped_broadcast_async(context(), tensors, root, options);
}

Tensors grouped_broadcast_(const Tensors& tensors, int root, const CollectiveOptions& options) {
  return grouped_broadcast_(context(), tensors, root, options);
}

TensorGroupWork grouped_broadcast_async_(const Tensors& tensors, int root,
                                         const CollectiveOptions& options) {
  return grouped_broadcast_async_(context(), tensors, root, options);
}

Tensors grouped_reducescatter(const Tensors& tensors, const AllreduceOptions& options,
                              Compression compression) {
  return grouped_reducescatter(context(), tensors, options, compression);
}

TensorGroupWork grouped_reducescatter_async(const Tensors& tensors, const AllreduceOptions& options,
                                            Compression compression) {
  return grouped_reducescatter_async(context(), tensors, options, compression);
}

std::vector<AlltoallResult> grouped_alltoall(const Tensors& tensors, const SplitsOfEach& splits,
                                             const CollectiveOptions& options) {
  return grouped_alltoall(context(), tensors, splits, options);
}

AlltoallGroupWork grouped_alltoall_async(const Tensors& tensors, const SplitsOfEach& splits,
                                         const CollectiveOptions& options) {
  return grouped_alltoall_async(context(), tensors, splits, options);
}

}  // namespace hvd
