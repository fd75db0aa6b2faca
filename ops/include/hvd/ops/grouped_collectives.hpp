// Declares groups of operations on plain host memory: none runs before every rank has submitted
// them all, and when one cannot run none does. `options.name` is the group's; items have names of
// their own, or are called `<group>/0`, `<group>/1`, … All ranks give the same items, or all of
// them fail with Errc::mismatch. The memory that items point to must live until the works are done.
// collectives.hpp declares grouped_allreduce_async.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hvd/ops/collectives.hpp>

namespace hvd {

/// Holds the arguments of a `broadcast_async`.
struct BroadcastItem {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  std::string name{};
};
/// Broadcasts all items from `root`, a rank of the job. Returns a work per item, in their order.
/// Throws what `broadcast_async` throws for an item; then nothing was submitted.
[[nodiscard]] std::vector<Work> grouped_broadcast_async(std::span<const BroadcastItem> items,
                                                        int root,
                                                        const CollectiveOptions& options = {});

/// Holds the arguments of an allgather or a reducescatter. `output` is resized to the result.
struct ResizedItem {
  const void* input = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  Bytes* output = nullptr;
  std::string name{};
};
/// Returns a work per item, in their order. Throws what `allgather_async` throws; then nothing was
/// submitted.
[[nodiscard]] std::vector<Work> grouped_allgather_async(std::span<const ResizedItem> items,
                                                        const CollectiveOptions& options = {});
/// Returns a work per item, in their order. Throws what `reducescatter_async` throws; then nothing
/// was submitted.
[[nodiscard]] std::vector<Work> grouped_reducescatter_async(std::span<const ResizedItem> items,
                                                            const AllreduceOptions& options = {});

/// Holds the arguments of an `alltoall_async`.
struct AlltoallItem {
  const void* input = nullptr;
  std::span<const std::int64_t> splits;
  DType dtype = DType::f32;
  Bytes* output = nullptr;
  std::vector<std::int64_t>* received = nullptr;
  std::string name{};
};
/// Returns a work per item, in their order. Throws what `alltoall_async` throws; then nothing was
/// submitted.
[[nodiscard]] std::vector<Work> grouped_alltoall_async(std::span<const AlltoallItem> items,
                                                       const CollectiveOptions& options = {});

}  // namespace hvd
