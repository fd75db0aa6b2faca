// Reducing sparse tensors without making them dense.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include <hvd/core/context.hpp>
#include <hvd/ops/collectives.hpp>
#include <hvd/torch/tensor_work.hpp>

namespace hvd {

/// The gathered parts of all ranks; `wait()` adds them up on the calling thread, each time anew.
class SparseWork {
 public:
  struct Settings {
    std::vector<std::int64_t> sizes{};
    std::int64_t sparse_dimensions = 1;
    torch::ScalarType dtype = torch::kFloat32;
    ReduceOp op = ReduceOp::average;
    double postscale = 1;
    std::int64_t ranks = 1;
  };

  SparseWork() noexcept = default;
  SparseWork(TensorGroupWork parts, Settings settings) noexcept
      : parts_(std::move(parts)), settings_(std::move(settings)) {}

  /// A new, coalesced tensor, equal on all ranks. Throws Errc::mismatch on every rank when the
  /// ranks' sizes differ, and what `TensorWork::wait` throws.
  [[nodiscard]] torch::Tensor wait() const;
  [[nodiscard]] bool wait_until(Deadline deadline) const { return parts_.wait_until(deadline); }
  [[nodiscard]] bool done() const noexcept { return parts_.done(); }

 private:
  TensorGroupWork parts_;
  Settings settings_;
};

/// The average (by default) or sum of COO tensors, as an allgather of indices and values: costs the
/// values of all ranks, and is right for embeddings of which each rank touches a few rows. Ranks
/// may have different numbers of values, also none. f16 and bf16 are added up in f32. Not recorded
/// by autograd. Throws Errc::invalid_argument (not COO, another op, scales on integers) at once.
[[nodiscard]] torch::Tensor sparse_allreduce(Context& context, const torch::Tensor& tensor,
                                             const AllreduceOptions& options = {});
[[nodiscard]] torch::Tensor sparse_allreduce(const torch::Tensor& tensor,
                                             const AllreduceOptions& options = {});
[[nodiscard]] SparseWork sparse_allreduce_async(Context& context, const torch::Tensor& tensor,
                                                const AllreduceOptions& options = {});
[[nodiscard]] SparseWork sparse_allreduce_async(const torch::Tensor& tensor,
                                                const AllreduceOptions& options = {});

}  // namespace hvd
