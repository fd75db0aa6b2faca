#include <utility>

#include <hvd/ops/array_collectives.hpp>
#include <hvd/ops/collectives.hpp>

#include "context/submissions.hpp"

namespace hvd {

using namespace detail;

Work allreduce_async(const void* input, void* output, std::int64_t count, DType dtype,
                     const AllreduceOptions& options) {
  return context_of(options).submit(allreduce_of(input, output, count, dtype, options));
}

void allreduce(const void* input, void* output, std::int64_t count, DType dtype,
               const AllreduceOptions& options) {
  context_of(options).run(allreduce_of(input, output, count, dtype, options));
}

Work broadcast_async(void* data, std::int64_t count, DType dtype, int root,
                     const CollectiveOptions& options) {
  return context_of(options).submit(broadcast_of(data, count, dtype, root, options));
}

void broadcast(void* data, std::int64_t count, DType dtype, int root,
               const CollectiveOptions& options) {
  context_of(options).run(broadcast_of(data, count, dtype, root, options));
}

Work allgather_async(const void* input, std::int64_t count, DType dtype, Bytes& output,
                     const CollectiveOptions& options) {
  return context_of(options).submit(
      allgather_of(input, count, dtype, resized(output, dtype), options));
}

Work reducescatter_async(const void* input, std::int64_t count, DType dtype, Bytes& output,
                         const AllreduceOptions& options) {
  return context_of(options).submit(
      reducescatter_of(input, count, dtype, resized(output, dtype), options));
}

Work alltoall_async(const void* input, std::span<const std::int64_t> splits, DType dtype,
                    Bytes& output, std::vector<std::int64_t>& received,
                    const CollectiveOptions& options) {
  return context_of(options).submit(
      alltoall_of(input, splits, dtype, resized(output, dtype), received, options));
}

void barrier(const CollectiveOptions& options) { context_of(options).run(barrier_of(options)); }

void allgather(const void* input, std::int64_t count, DType dtype, AllocateResult output,
               const CollectiveOptions& options) {
  context_of(options).run(allgather_of(input, count, dtype, std::move(output), options));
}

void reducescatter(const void* input, std::int64_t count, DType dtype, AllocateResult output,
                   const AllreduceOptions& options) {
  context_of(options).run(reducescatter_of(input, count, dtype, std::move(output), options));
}

void alltoall(const void* input, std::span<const std::int64_t> splits, DType dtype,
              AllocateResult output, std::vector<std::int64_t>& received,
              const CollectiveOptions& options) {
  context_of(options).run(alltoall_of(input, splits, dtype, std::move(output), received, options));
}

}  // namespace hvd
