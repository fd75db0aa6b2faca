// Groups of operations on plain host memory: none runs before every rank has submitted them all,
// and when one cannot run none does. `options.name` is the group's; items have names of their own,
// or take them from the order of unnamed operations. The memory that items point to lives until
// the works are done. grouped_allreduce_async is beside the other collectives.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hvd/ops/collectives.hpp>

namespace hvd {

/// As the arguments of `broadcast_async`.
struct BroadcastItem {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  std::string name{};
};
/// All from `root`, a rank of the job. A work per item, in their order. Throws what
/// `broadcast_async` throws, for an item that cannot work, and then none was submitted.
[[nodiscard]] std::vector<Work> grouped_broadcast_async(Context& context,
                                                        std::span<const BroadcastItem> items,
                                                        int root,
                                                        const CollectiveOptions& options = {});

/// Of an allgather or a reducescatter, whose result `output` is resized to.
struct ResizedItem {
  const void* input = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  Bytes* output = nullptr;
  std::string name{};
};
/// A work per item, in their order; throws as `allgather_async`, and then none was submitted.
[[nodiscard]] std::vector<Work> grouped_allgather_async(Context& context,
                                                        std::span<const ResizedItem> items,
                                                        const CollectiveOptions& options = {});
/// A work per item, in their order; throws as `reducescatter_async`, and then none was submitted.
[[nodiscard]] std::vector<Work> grouped_reducescatter_async(Context& context,
                                                            std::span<const ResizedItem> items,
                                                            const AllreduceOptions& options = {});

/// As the arguments of `alltoall_async`.
struct AlltoallItem {
  const void* input = nullptr;
  std::span<const std::int64_t> splits;
  DType dtype = DType::f32;
  Bytes* output = nullptr;
  std::vector<std::int64_t>* received = nullptr;
  std::string name{};
};
/// A work per item, in their order; throws as `alltoall_async`, and then none was submitted.
[[nodiscard]] std::vector<Work> grouped_alltoall_async(Context& context,
                                                       std::span<const AlltoallItem> items,
                                                       const CollectiveOptions& options = {});

}  // namespace hvd
