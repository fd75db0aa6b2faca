#include "reduce/reduce.hpp"
#include "ring/allreduce.hpp"

namespace hvd {

bool prefers_one_shot(std::size_t bytes, int ranks) noexcept {
  constexpr std::size_t kReceived = std::size_t{16} << 10;
  return ranks > 1 && bytes * static_cast<std::size_t>(ranks - 1) <= kReceived;
}

void one_shot_allreduce(Transport& transport, const Reduction& job, FusionBuffer& scratch,
                        Deadline deadline) {
  const int rank = transport.rank();
  const int size = transport.size();
  const std::size_t bytes = job.bytes();
  std::byte* const slots = scratch.reserve(bytes * static_cast<std::size_t>(size));
  const auto slot = [&](int r) { return slots + bytes * static_cast<std::size_t>(r % size); };

  for (int distance = 1; distance < size; ++distance) {
    const int from = (rank - distance + size) % size;
    transport.exchange({.peer = (rank + distance) % size, .bytes = {job.own, bytes}},
                       {.peer = from, .size = bytes, .into = slot(from), .sink = {}}, deadline);
  }

  const auto contribution = [&](int r) -> const std::byte* {
    return r % size == rank ? job.own : slot(r);
  };
  for (int k = 0; k < size; ++k) {  // in the order of plan_ring
    const std::size_t offset = job.offset(k);
    const std::byte* partial = contribution(k + 1) + offset;
    for (int hop = 2; hop <= size; ++hop) {
      // This rank's own slot is free for what is not complete: `result` may be `own`.
      std::byte* const to = (hop == size ? job.result : slot(rank)) + offset;
      reduce(job.elements.dtype(), job.elements.op(), to, contribution(k + hop) + offset, partial,
             job.count(k) * job.elements.lanes());
      partial = to;
    }
  }
  job.elements.finish(job.result, job.bounds.back());
}

}  // namespace hvd
