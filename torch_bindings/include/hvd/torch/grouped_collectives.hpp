// Collectives on several tensors that become ready together.
#pragma once

#include <vector>

#include <hvd/torch/collectives.hpp>

namespace hvd {

// None of a group's tensors runs before every rank has submitted them all, and when one cannot run
// none does. A tensor that is refused here (dtype, layout) keeps the whole group from being sent.
// The name in the options is the group's; its tensors are called `<name>/0`, `<name>/1`, … All
// ranks give equally many tensors; none at all is fine and does nothing. Else as the single forms
// (collectives.hpp), also for autograd.

using Tensors = std::vector<torch::Tensor>;

/// New tensors, as of `allreduce`.
[[nodiscard]] Tensors grouped_allreduce(Context& context, const Tensors& tensors,
                                        const AllreduceOptions& options = {},
                                        Compression compression = Compression::none);
[[nodiscard]] Tensors grouped_allreduce(const Tensors& tensors,
                                        const AllreduceOptions& options = {},
                                        Compression compression = Compression::none);
[[nodiscard]] TensorGroupWork grouped_allreduce_async(Context& context, const Tensors& tensors,
                                                      const AllreduceOptions& options = {},
                                                      Compression compression = Compression::none);
[[nodiscard]] TensorGroupWork grouped_allreduce_async(const Tensors& tensors,
                                                      const AllreduceOptions& options = {},
                                                      Compression compression = Compression::none);
/// In place. Returns `tensors`.
Tensors grouped_allreduce_(Context& context, const Tensors& tensors,
                           const AllreduceOptions& options = {},
                           Compression compression = Compression::none);
Tensors grouped_allreduce_(const Tensors& tensors, const AllreduceOptions& options = {},
                           Compression compression = Compression::none);
[[nodiscard]] TensorGroupWork grouped_allreduce_async_(Context& context, const Tensors& tensors,
                                                       const AllreduceOptions& options = {},
                                                       Compression compression = Compression::none);
[[nodiscard]] TensorGroupWork grouped_allreduce_async_(const Tensors& tensors,
                                                       const AllreduceOptions& options = {},
                                                       Compression compression = Compression::none);

/// New tensors, as of `allgather`.
[[nodiscard]] Tensors grouped_allgather(Context& context, const Tensors& tensors,
                                        const CollectiveOptions& options = {});
[[nodiscard]] Tensors grouped_allgather(const Tensors& tensors,
                                        const CollectiveOptions& options = {});
[[nodiscard]] TensorGroupWork grouped_allgather_async(Context& context, const Tensors& tensors,
                                                      const CollectiveOptions& options = {});
[[nodiscard]] TensorGroupWork grouped_allgather_async(const Tensors& tensors,
                                                      const CollectiveOptions& options = {});

/// New tensors, as of `broadcast`.
[[nodiscard]] Tensors grouped_broadcast(Context& context, const Tensors& tensors, int root = 0,
                                        const CollectiveOptions& options = {});
[[nodiscard]] Tensors grouped_broadcast(const Tensors& tensors, int root = 0,
                                        const CollectiveOptions& options = {});
[[nodiscard]] TensorGroupWork grouped_broadcast_async(Context& context, const Tensors& tensors,
                                                      int root = 0,
                                                      const CollectiveOptions& options = {});
[[nodiscard]] TensorGroupWork grouped_broadcast_async(const Tensors& tensors, int root = 0,
                                                      const CollectiveOptions& options = {});
/// In place. Returns `tensors`.
Tensors grouped_broadcast_(Context& context, const Tensors& tensors, int root = 0,
                           const CollectiveOptions& options = {});
Tensors grouped_broadcast_(const Tensors& tensors, int root = 0,
                           const CollectiveOptions& options = {});
[[nodiscard]] TensorGroupWork grouped_broadcast_async_(Context& context, const Tensors& tensors,
                                                       int root = 0,
                                                       const CollectiveOptions& options = {});
[[nodiscard]] TensorGroupWork grouped_broadcast_async_(const Tensors& tensors, int root = 0,
                                                       const CollectiveOptions& options = {});

/// New tensors, as of `reducescatter`.
[[nodiscard]] Tensors grouped_reducescatter(Context& context, const Tensors& tensors,
                                            const AllreduceOptions& options = {},
                                            Compression compression = Compression::none);
[[nodiscard]] Tensors grouped_reducescatter(const Tensors& tensors,
                                            const AllreduceOptions& options = {},
                                            Compression compression = Compression::none);
[[nodiscard]] TensorGroupWork grouped_reducescatter_async(
    Context& context, const Tensors& tensors, const AllreduceOptions& options = {},
    Compression compression = Compression::none);
[[nodiscard]] TensorGroupWork grouped_reducescatter_async(
    const Tensors& tensors, const AllreduceOptions& options = {},
    Compression compression = Compression::none);

/// `splits[i]` are those of the i-th tensor; without any, all are split evenly.
using SplitsOfEach = std::vector<std::vector<std::int64_t>>;
/// New tensors and received splits, as of `alltoall`.
[[nodiscard]] std::vector<AlltoallResult> grouped_alltoall(Context& context, const Tensors& tensors,
                                                           const SplitsOfEach& splits = {},
                                                           const CollectiveOptions& options = {});
[[nodiscard]] std::vector<AlltoallResult> grouped_alltoall(const Tensors& tensors,
                                                           const SplitsOfEach& splits = {},
                                                           const CollectiveOptions& options = {});
[[nodiscard]] AlltoallGroupWork grouped_alltoall_async(Context& context, const Tensors& tensors,
                                                       const SplitsOfEach& splits = {},
                                                       const CollectiveOptions& options = {});
[[nodiscard]] AlltoallGroupWork grouped_alltoall_async(const Tensors& tensors,
                                                       const SplitsOfEach& splits = {},
                                                       const CollectiveOptions& options = {});

}  // namespace hvd
