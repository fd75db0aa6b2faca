// Reduces sparse tensors without making them dense.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include <hvd/core/context.hpp>
#include <hvd/ops/collectives.hpp>
#include <hvd/torch/tensor_work.hpp>

namespace hvd {

namespace detail {

/// Describes how the gathered parts of a sparse allreduce are added up.
struct SparseReduction {
  std::vector<std::int64_t> sizes{};
  std::int64_t sparse_dimensions = 1;
  torch::ScalarType dtype = torch::kFloat32;
  ReduceOp op = ReduceOp::average;
  double postscale = 1;
  std::int64_t ranks = 1;
};

}  // namespace detail

/// The completion handle of a sparse allreduce. Every `wait()` adds up the gathered parts of all
/// ranks on the calling thread.
class SparseWork {
 public:
  SparseWork() noexcept = default;
  SparseWork(TensorGroupWork parts, detail::SparseReduction reduction) noexcept
      : parts_(std::move(parts)), reduction_(std::move(reduction)) {}

  /// Returns a new, coalesced tensor, which is equal on all ranks. Throws Errc::mismatch on every
  /// rank when the ranks' sizes differ, and what `TensorWork::wait` throws.
  [[nodiscard]] torch::Tensor wait() const;
  [[nodiscard]] bool wait_until(Deadline deadline) const { return parts_.wait_until(deadline); }
  [[nodiscard]] bool done() const noexcept { return parts_.done(); }

 private:
  TensorGroupWork parts_;
  detail::SparseReduction reduction_;
};

/// Returns the average (by default) or the sum of COO tensors. It gathers the indices and values of
/// all ranks, so it suits embeddings of which each rank uses a few rows. The tensors have the same
/// shape on all ranks, but may have different numbers of values, also none. Values of f16 and bf16
/// are added up in f32. Autograd does not record it. Before anything is sent it throws
/// Errc::invalid_argument for a tensor that is not COO, for another op, and for scales of integers.
[[nodiscard]] torch::Tensor sparse_allreduce(const torch::Tensor& tensor,
                                             const AllreduceOptions& options = {});
[[nodiscard]] SparseWork sparse_allreduce_async(const torch::Tensor& tensor,
                                                const AllreduceOptions& options = {});

}  // namespace hvd
