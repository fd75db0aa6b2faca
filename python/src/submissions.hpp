// Makes submissions to the engine of operations of torch.distributed. They have no names yet.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <hvd/core/request.hpp>

namespace hvd::python {

[[nodiscard]] ReduceOp reduce_op_of(const c10d::ReduceOp& op);

/// Returns the one tensor of a call.
[[nodiscard]] at::Tensor& only(std::vector<at::Tensor>& tensors);

/// Returns the values in row-major memory, that of `tensor` where it is contiguous. Those of
/// several tensors follow each other.
[[nodiscard]] at::Tensor dense(const at::Tensor& tensor);
[[nodiscard]] at::Tensor dense(const std::vector<at::Tensor>& tensors);

/// Reduces or broadcasts `memory`, the values of `tensor`, in place.
[[nodiscard]] Submission in_place(OpKind kind, const at::Tensor& tensor, const at::Tensor& memory);

/// Reduces `tensor` in place where it `receives` the result, among `size` ranks.
[[nodiscard]] Submission reduced(const at::Tensor& tensor, const c10d::ReduceOp& op, bool receives,
                                 int size);

/// Gathers into the tensors, in rank order.
[[nodiscard]] Submission gathered(const at::Tensor& tensor, const std::vector<at::Tensor>& outputs);

/// Reduces `input` and puts the part of this rank into `output`.
[[nodiscard]] Submission reduce_scattered(const at::Tensor& input, const at::Tensor& output,
                                          const c10d::ReduceOp& op, int rank, int size);

/// Sends `splits` elements to each rank, and puts what comes into the tensors, in rank order.
[[nodiscard]] Submission exchanged(const at::Tensor& input, std::vector<std::int64_t> splits,
                                   const std::vector<at::Tensor>& outputs);

}  // namespace hvd::python
