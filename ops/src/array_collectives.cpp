#include <utility>

#include <hvd/ops/array_collectives.hpp>

#include "submissions.hpp"

namespace hvd {

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
