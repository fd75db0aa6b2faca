// Declares the collectives on tensors.
#pragma once

#include <torch/types.h>

#include <hvd/ops/collectives.hpp>
#include <hvd/torch/compression.hpp>
#include <hvd/torch/tensor_work.hpp>

namespace hvd {

// Tensors are dense, lie on the CPU or a CUDA device, and have dtype u8, i8, i16, i32, i64, f16,
// bf16, f32, f64 or bool. They may have any shape, including scalars and tensors without elements,
// and any strides. A tensor that is not row-major is reduced in a copy, and the in-place forms copy
// the result back. New tensors are row-major.
//
// Autograd records the blocking forms that return a new tensor when their input requires a gradient
// (docs/reference/torch.md). Then backward() is collective too, and the context must outlive it.
// The in-place and `_async` forms are not recorded; they use the tensor's values only.
//
// An unnamed operation gets its name from the order of unnamed calls of that kind. Named operations
// may be submitted in any order. All are collective among the ranks of the process set, and any
// thread may call them. The blocking forms run the collective on the calling thread where they can,
// which is the fastest way for small tensors.
//
// They throw Errc::unsupported for a sparse tensor and for other dtypes and devices;
// Errc::invalid_argument for an in-place tensor whose elements share memory and for splits that do
// not fit; and what `Context::submit` and `Work::wait` throw.

/// Returns the reduction of the ranks' tensors, by default their average, as a new tensor.
[[nodiscard]] torch::Tensor allreduce(const torch::Tensor& tensor,
                                      const AllreduceOptions& options = {},
                                      Compression compression = Compression::none);
[[nodiscard]] TensorWork allreduce_async(const torch::Tensor& tensor,
                                         const AllreduceOptions& options = {},
                                         Compression compression = Compression::none);

/// Overwrites `tensor` with the reduction, and returns it.
torch::Tensor allreduce_(const torch::Tensor& tensor, const AllreduceOptions& options = {},
                         Compression compression = Compression::none);
[[nodiscard]] TensorWork allreduce_async_(const torch::Tensor& tensor,
                                          const AllreduceOptions& options = {},
                                          Compression compression = Compression::none);

/// Concatenates the ranks' tensors along the first dimension, in rank order. The ranks may have
/// different numbers of rows, also none. A scalar counts as one row.
[[nodiscard]] torch::Tensor allgather(const torch::Tensor& tensor,
                                      const CollectiveOptions& options = {});
[[nodiscard]] TensorWork allgather_async(const torch::Tensor& tensor,
                                         const CollectiveOptions& options = {});

/// Returns a new tensor with the values of `root`, a rank of the context. The other ranks' tensors
/// have the same shape and dtype.
[[nodiscard]] torch::Tensor broadcast(const torch::Tensor& tensor, int root = 0,
                                      const CollectiveOptions& options = {});
[[nodiscard]] TensorWork broadcast_async(const torch::Tensor& tensor, int root = 0,
                                         const CollectiveOptions& options = {});

/// Overwrites `tensor` with the values of `root`, and returns it.
torch::Tensor broadcast_(const torch::Tensor& tensor, int root = 0,
                         const CollectiveOptions& options = {});
[[nodiscard]] TensorWork broadcast_async_(const torch::Tensor& tensor, int root = 0,
                                          const CollectiveOptions& options = {});

/// Returns this rank's rows of the reduced tensor, as a new tensor. The rows are divided evenly;
/// the first `rows % ranks` ranks get one row more.
[[nodiscard]] torch::Tensor reducescatter(const torch::Tensor& tensor,
                                          const AllreduceOptions& options = {},
                                          Compression compression = Compression::none);
[[nodiscard]] TensorWork reducescatter_async(const torch::Tensor& tensor,
                                             const AllreduceOptions& options = {},
                                             Compression compression = Compression::none);

/// Sends `splits[i]` rows to the i-th rank of the process set, in order. Without splits every rank
/// gets equally many rows, and the number of rows must be a multiple of the number of ranks.
[[nodiscard]] AlltoallResult alltoall(const torch::Tensor& tensor, torch::IntArrayRef splits = {},
                                      const CollectiveOptions& options = {});
[[nodiscard]] AlltoallWork alltoall_async(const torch::Tensor& tensor,
                                          torch::IntArrayRef splits = {},
                                          const CollectiveOptions& options = {});

}  // namespace hvd
