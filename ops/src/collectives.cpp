#include <utility>

#include <hvd/ops/array_collectives.hpp>
#include <hvd/ops/collectives.hpp>

#include "context/submissions.hpp"

namespace hvd {

Work allreduce_async(Context& context, const void* input, void* output, std::int64_t count,
                     DType dtype, const AllreduceOptions& options) {
  return context.submit(allreduce_of(input, output, count, dtype, options));
}

void allreduce(Context& context, const void* input, void* output, std::int64_t count, DType dtype,
               const AllreduceOptions& options) {
  context.run(allreduce_of(input, output, count, dtype, options));
}

Work broadcast_async(Context& context, void* data, std::int64_t count, DType dtype, int root,
                     const CollectiveOptions& options) {
  return context.submit(broadcast_of(data, count, dtype, root, options));
}

void broadcast(Context& context, void* data, std::int64_t count, DType dtype, int root,
               const CollectiveOptions& options) {
  context.run(broadcast_of(data, count, dtype, root, options));
}

Work allgather_async(Context& context, const void* input, std::int64_t count, DType dtype,
                     Bytes& output, const CollectiveOptions& options) {
  return context.submit(allgather_of(input, count, dtype, resized(output, dtype), options));
}

Work reducescatter_async(Context& context, const void* input, std::int64_t count, DType dtype,
                         Bytes& output, const AllreduceOptions& options) {
  return context.submit(reducescatter_of(input, count, dtype, resized(output, dtype), options));
}

Work alltoall_async(Context& context, const void* input, std::span<const std::int64_t> splits,
                    DType dtype, Bytes& output, std::vector<std::int64_t>& received,
                    const CollectiveOptions& options) {
  return context.submit(
      alltoall_of(input, splits, dtype, resized(output, dtype), received, options));
}

void barrier(Context& context, const CollectiveOptions& options) {
  context.run(barrier_of(options));
}

void allgather(Context& context, const void* input, std::int64_t count, DType dtype,
               AllocateResult output, const CollectiveOptions& options) {
  context.run(allgather_of(input, count, dtype, std::move(output), options));
}

void reducescatter(Context& context, const void* input, std::int64_t count, DType dtype,
                   AllocateResult output, const AllreduceOptions& options) {
  context.run(reducescatter_of(input, count, dtype, std::move(output), options));
}

void alltoall(Context& context, const void* input, std::span<const std::int64_t> splits,
              DType dtype, AllocateResult output, std::vector<std::int64_t>& received,
              const CollectiveOptions& options) {
  context.run(alltoall_of(input, splits, dtype, std::move(output), received, options));
}

}  // namespace hvd
