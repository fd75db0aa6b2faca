// Makes the submissions of operations on plain memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <hvd/ops/array_collectives.hpp>

namespace hvd::detail {

/// Returns the allocator that resizes `output`.
[[nodiscard]] AllocateResult resized(Bytes& output, DType dtype);

[[nodiscard]] Submission allreduce_of(const void* input, void* output, std::int64_t count,
                                      DType dtype, const AllreduceOptions& options);
[[nodiscard]] Submission broadcast_of(void* data, std::int64_t count, DType dtype, int root,
                                      const CollectiveOptions& options);
[[nodiscard]] Submission allgather_of(const void* input, std::int64_t count, DType dtype,
                                      AllocateResult output, const CollectiveOptions& options);
[[nodiscard]] Submission reducescatter_of(const void* input, std::int64_t count, DType dtype,
                                          AllocateResult output, const AllreduceOptions& options);
[[nodiscard]] Submission alltoall_of(const void* input, std::span<const std::int64_t> splits,
                                     DType dtype, AllocateResult output,
                                     std::vector<std::int64_t>& received,
                                     const CollectiveOptions& options);
[[nodiscard]] Submission barrier_of(const CollectiveOptions& options);

}  // namespace hvd::detail
