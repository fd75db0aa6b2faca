// Collectives on tensors.
#pragma once

#include <string>

#include <torch/types.h>

#include <hvd/ops/collectives.hpp>
#include <hvd/torch/tensor_work.hpp>

namespace hvd {

// Every function exists for a context of one's own and, without the first argument, for the default
// one (`hvd::context()`).
//
// Tensors are dense, on the CPU or a CUDA device, of dtype u8 i8 i16 i32 i64 f16 bf16 f32 f64 bool;
// of any shape, also a scalar or without elements; of any strides: what is not row-major is reduced
// in a copy, and the in-place forms copy the result back. Results are row-major.
// Nothing is recorded by autograd: a tensor that requires a gradient is taken by its value.
//
// An empty name is made from the order of unnamed calls of that kind. Named ones may be submitted
// in any order. Collective; any thread.
//
// Throws Errc::unsupported (sparse tensor, dtype or device), Errc::invalid_argument (an in-place
// tensor whose elements share memory), and what `Context::submit` and `Work::wait` throw.

/// A new tensor with the average, by default, over the ranks. `tensor` is left as it is.
[[nodiscard]] torch::Tensor allreduce(Context& context, const torch::Tensor& tensor,
                                      const AllreduceOptions& options = {});
[[nodiscard]] torch::Tensor allreduce(const torch::Tensor& tensor,
                                      const AllreduceOptions& options = {});
[[nodiscard]] TensorWork allreduce_async(Context& context, const torch::Tensor& tensor,
                                         const AllreduceOptions& options = {});
[[nodiscard]] TensorWork allreduce_async(const torch::Tensor& tensor,
                                         const AllreduceOptions& options = {});

/// In place. Returns `tensor`.
torch::Tensor allreduce_(Context& context, const torch::Tensor& tensor,
                         const AllreduceOptions& options = {});
torch::Tensor allreduce_(const torch::Tensor& tensor, const AllreduceOptions& options = {});
[[nodiscard]] TensorWork allreduce_async_(Context& context, const torch::Tensor& tensor,
                                          const AllreduceOptions& options = {});
[[nodiscard]] TensorWork allreduce_async_(const torch::Tensor& tensor,
                                          const AllreduceOptions& options = {});

/// The ranks' tensors one after another along the first dimension, in which they may differ (also
/// 0 rows). Scalars count as one row.
[[nodiscard]] torch::Tensor allgather(Context& context, const torch::Tensor& tensor,
                                      const std::string& name = {});
[[nodiscard]] torch::Tensor allgather(const torch::Tensor& tensor, const std::string& name = {});
[[nodiscard]] TensorWork allgather_async(Context& context, const torch::Tensor& tensor,
                                         const std::string& name = {});
[[nodiscard]] TensorWork allgather_async(const torch::Tensor& tensor, const std::string& name = {});

/// A new tensor with the values of rank `root`; the other ranks' tensors give shape and dtype.
[[nodiscard]] torch::Tensor broadcast(Context& context, const torch::Tensor& tensor, int root = 0,
                                      const std::string& name = {});
[[nodiscard]] torch::Tensor broadcast(const torch::Tensor& tensor, int root = 0,
                                      const std::string& name = {});
[[nodiscard]] TensorWork broadcast_async(Context& context, const torch::Tensor& tensor,
                                         int root = 0, const std::string& name = {});
[[nodiscard]] TensorWork broadcast_async(const torch::Tensor& tensor, int root = 0,
                                         const std::string& name = {});

/// In place. Returns `tensor`.
torch::Tensor broadcast_(Context& context, const torch::Tensor& tensor, int root = 0,
                         const std::string& name = {});
torch::Tensor broadcast_(const torch::Tensor& tensor, int root = 0, const std::string& name = {});
[[nodiscard]] TensorWork broadcast_async_(Context& context, const torch::Tensor& tensor,
                                          int root = 0, const std::string& name = {});
[[nodiscard]] TensorWork broadcast_async_(const torch::Tensor& tensor, int root = 0,
                                          const std::string& name = {});

}  // namespace hvd
