// Collectives on tensors.
#pragma once

#include <torch/types.h>

#include <hvd/ops/collectives.hpp>
#include <hvd/torch/compression.hpp>
#include <hvd/torch/tensor_work.hpp>

namespace hvd {

// Every function exists for a context of one's own and, without the first argument, for the default
// one (`hvd::context()`).
//
// Tensors are dense, on the CPU or a CUDA device, of dtype u8 i8 i16 i32 i64 f16 bf16 f32 f64 bool;
// of any shape, also a scalar or without elements; of any strides: what is not row-major is reduced
// in a copy, and the in-place forms copy the result back. Results are row-major.
//
// The blocking forms that return a new tensor are recorded by autograd when their input requires a
// gradient (docs/torch.md): backward() then is collective too, and the context outlives it. The
// in-place and `_async` forms are not recorded: they take a tensor by its value.
//
// An empty name is made from the order of unnamed calls of that kind. Named ones may be submitted
// in any order. Collective among the ranks of the process set; any thread. The blocking forms run
// the collective on the calling thread where they can, which is the fastest way for small tensors.
//
// Throws Errc::unsupported (sparse tensor, dtype or device), Errc::invalid_argument (an in-place
// tensor whose elements share memory, splits that do not fit), and what `Context::submit` and
// `Work::wait` throw.

/// A new tensor with the average, by default, over the ranks. `tensor` is left as it is.
[[nodiscard]] torch::Tensor allreduce(Context& context, const torch::Tensor& tensor,
                                      const AllreduceOptions& options = {},
                                      Compression compression = Compression::none);
[[nodiscard]] torch::Tensor allreduce(const torch::Tensor& tensor,
                                      const AllreduceOptions& options = {},
                                      Compression compression = Compression::none);
[[nodiscard]] TensorWork allreduce_async(Context& context, const torch::Tensor& tensor,
                                         const AllreduceOptions& options = {},
                                         Compression compression = Compression::none);
[[nodiscard]] TensorWork allreduce_async(const torch::Tensor& tensor,
                                         const AllreduceOptions& options = {},
                                         Compression compression = Compression::none);

/// In place. Returns `tensor`.
torch::Tensor allreduce_(Context& context, const torch::Tensor& tensor,
                         const AllreduceOptions& options = {},
                         Compression compression = Compression::none);
torch::Tensor allreduce_(const torch::Tensor& tensor, const AllreduceOptions& options = {},
                         Compression compression = Compression::none);
[[nodiscard]] TensorWork allreduce_async_(Context& context, const torch::Tensor& tensor,
                                          const AllreduceOptions& options = {},
                                          Compression compression = Compression::none);
[[nodiscard]] TensorWork allreduce_async_(const torch::Tensor& tensor,
                                          const AllreduceOptions& options = {},
                                          Compression compression = Compression::none);

/// The ranks' tensors one after another along the first dimension, in which they may differ (also
/// 0 rows). Scalars count as one row.
[[nodiscard]] torch::Tensor allgather(Context& context, const torch::Tensor& tensor,
                                      const CollectiveOptions& options = {});
[[nodiscard]] torch::Tensor allgather(const torch::Tensor& tensor,
                                      const CollectiveOptions& options = {});
[[nodiscard]] TensorWork allgather_async(Context& context, const torch::Tensor& tensor,
                                         const CollectiveOptions& options = {});
[[nodiscard]] TensorWork allgather_async(const torch::Tensor& tensor,
                                         const CollectiveOptions& options = {});

/// A new tensor with the values of `root`, a rank of the context; the other ranks' tensors give
/// shape and dtype.
[[nodiscard]] torch::Tensor broadcast(Context& context, const torch::Tensor& tensor, int root = 0,
                                      const CollectiveOptions& options = {});
[[nodiscard]] torch::Tensor broadcast(const torch::Tensor& tensor, int root = 0,
                                      const CollectiveOptions& options = {});
[[nodiscard]] TensorWork broadcast_async(Context& context, const torch::Tensor& tensor,
                                         int root = 0, const CollectiveOptions& options = {});
[[nodiscard]] TensorWork broadcast_async(const torch::Tensor& tensor, int root = 0,
                                         const CollectiveOptions& options = {});

/// In place. Returns `tensor`.
torch::Tensor broadcast_(Context& context, const torch::Tensor& tensor, int root = 0,
                         const CollectiveOptions& options = {});
torch::Tensor broadcast_(const torch::Tensor& tensor, int root = 0,
                         const CollectiveOptions& options = {});
[[nodiscard]] TensorWork broadcast_async_(Context& context, const torch::Tensor& tensor,
                                          int root = 0, const CollectiveOptions& options = {});
[[nodiscard]] TensorWork broadcast_async_(const torch::Tensor& tensor, int root = 0,
                                          const CollectiveOptions& options = {});

/// This rank's rows of the reduced tensor: the first dimension is split evenly, the first
/// `rows % ranks` ranks get one more.
[[nodiscard]] torch::Tensor reducescatter(Context& context, const torch::Tensor& tensor,
                                          const AllreduceOptions& options = {},
                                          Compression compression = Compression::none);
[[nodiscard]] torch::Tensor reducescatter(const torch::Tensor& tensor,
                                          const AllreduceOptions& options = {},
                                          Compression compression = Compression::none);
[[nodiscard]] TensorWork reducescatter_async(Context& context, const torch::Tensor& tensor,
                                             const AllreduceOptions& options = {},
                                             Compression compression = Compression::none);
[[nodiscard]] TensorWork reducescatter_async(const torch::Tensor& tensor,
                                             const AllreduceOptions& options = {},
                                             Compression compression = Compression::none);

/// Sends `splits[i]` rows to the i-th rank of the process set, in order. Without splits every rank
/// gets equally many, and their number must divide the rows.
[[nodiscard]] AlltoallResult alltoall(Context& context, const torch::Tensor& tensor,
                                      torch::IntArrayRef splits = {},
                                      const CollectiveOptions& options = {});
[[nodiscard]] AlltoallResult alltoall(const torch::Tensor& tensor, torch::IntArrayRef splits = {},
                                      const CollectiveOptions& options = {});
[[nodiscard]] AlltoallWork alltoall_async(Context& context, const torch::Tensor& tensor,
                                          torch::IntArrayRef splits = {},
                                          const CollectiveOptions& options = {});
[[nodiscard]] AlltoallWork alltoall_async(const torch::Tensor& tensor,
                                          torch::IntArrayRef splits = {},
                                          const CollectiveOptions& options = {});

}  // namespace hvd
