// Declares collectives on several tensors that are negotiated together.
#pragma once

#include <vector>

#include <hvd/torch/collectives.hpp>

namespace hvd {

// No tensor of a group is reduced before every rank has submitted all of them, and if one cannot be
// reduced, none is. When a tensor is refused for its dtype or layout, nothing of the group is sent.
// The name in the options is that of the group; its tensors are called `<name>/0`, `<name>/1` and
// so on. All ranks pass the same number of tensors; otherwise every rank throws Errc::mismatch. An
// empty group does nothing. Otherwise these functions behave like those for one tensor
// (collectives.hpp), also in autograd.

using Tensors = std::vector<torch::Tensor>;

/// Applies `allreduce` to each tensor.
[[nodiscard]] Tensors grouped_allreduce(const Tensors& tensors,
                                        const AllreduceOptions& options = {},
                                        Compression compression = Compression::none);
[[nodiscard]] TensorGroupWork grouped_allreduce_async(const Tensors& tensors,
                                                      const AllreduceOptions& options = {},
                                                      Compression compression = Compression::none);
/// Overwrites the tensors, and returns them.
Tensors grouped_allreduce_(const Tensors& tensors, const AllreduceOptions& options = {},
                           Compression compression = Compression::none);
[[nodiscard]] TensorGroupWork grouped_allreduce_async_(const Tensors& tensors,
                                                       const AllreduceOptions& options = {},
                                                       Compression compression = Compression::none);

/// Applies `allgather` to each tensor.
[[nodiscard]] Tensors grouped_allgather(const Tensors& tensors,
                                        const CollectiveOptions& options = {});
[[nodiscard]] TensorGroupWork grouped_allgather_async(const Tensors& tensors,
                                                      const CollectiveOptions& options = {});

/// Applies `broadcast` to each tensor.
[[nodiscard]] Tensors grouped_broadcast(const Tensors& tensors, int root = 0,
                                        const CollectiveOptions& options = {});
[[nodiscard]] TensorGroupWork grouped_broadcast_async(const Tensors& tensors, int root = 0,
                                                      const CollectiveOptions& options = {});
/// Overwrites the tensors, and returns them.
Tensors grouped_broadcast_(const Tensors& tensors, int root = 0,
                           const CollectiveOptions& options = {});
[[nodiscard]] TensorGroupWork grouped_broadcast_async_(const Tensors& tensors, int root = 0,
                                                       const CollectiveOptions& options = {});

/// Applies `reducescatter` to each tensor.
[[nodiscard]] Tensors grouped_reducescatter(const Tensors& tensors,
                                            const AllreduceOptions& options = {},
                                            Compression compression = Compression::none);
[[nodiscard]] TensorGroupWork grouped_reducescatter_async(
    const Tensors& tensors, const AllreduceOptions& options = {},
    Compression compression = Compression::none);

/// The splits of each tensor. An empty list splits all tensors evenly.
using SplitsOfEach = std::vector<std::vector<std::int64_t>>;
/// Applies `alltoall` to each tensor.
[[nodiscard]] std::vector<AlltoallResult> grouped_alltoall(const Tensors& tensors,
                                                           const SplitsOfEach& splits = {},
                                                           const CollectiveOptions& options = {});
[[nodiscard]] AlltoallGroupWork grouped_alltoall_async(const Tensors& tensors,
                                                       const SplitsOfEach& splits = {},
                                                       const CollectiveOptions& options = {});

}  // namespace hvd
