#include "death/operation.hpp"

#include <cstddef>
#include <vector>

namespace hvd::test {

void run_operation(OpKind kind, Backend& backend, std::int64_t count, int size, Deadline deadline) {
  const std::vector<std::int64_t> parts(static_cast<std::size_t>(size), count / size);
  std::vector<float> give(static_cast<std::size_t>(count), 1);
  std::vector<float> take(give.size());
  auto* const from = reinterpret_cast<std::byte*>(give.data());
  auto* const to = reinterpret_cast<std::byte*>(take.data());
  const TensorSlice whole{from, from, count};
  switch (kind) {
    case OpKind::broadcast:
      return backend.broadcast({{&whole, 1}, {}, DType::f32, 0}, deadline);
    case OpKind::allgather: {
      const GatherSlice slice{from, to, parts};
      return backend.allgather({{&slice, 1}, {}, DType::f32}, deadline);
    }
    case OpKind::reducescatter: {
      const ScatterSlice slice{from, to, parts};
      return backend.reducescatter({{&slice, 1}, {}, DType::f32, ReduceOp::sum}, deadline);
    }
    case OpKind::alltoall:
      return backend.alltoall({from, to, parts, parts, {}, DType::f32}, deadline);
    case OpKind::barrier:
      return backend.barrier(deadline);
    default:
      return backend.allreduce({.tensors = {&whole, 1}, .device = {}, .op = ReduceOp::sum},
                               deadline);
  }
}

}  // namespace hvd::test
