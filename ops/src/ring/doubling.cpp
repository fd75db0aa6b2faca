#include <algorithm>

#include "fusion/copy_bytes.hpp"
#include "reduce/reduce.hpp"
#include "ring/allreduce.hpp"

namespace hvd {

void doubling_allreduce(Transport& transport, const Reduction& job, FusionBuffer& scratch,
                        Deadline deadline) {
  const int rank = transport.rank();
  const int size = transport.size();
  const std::size_t bytes = job.bytes();
  std::byte* const slots = scratch.reserve(bytes * static_cast<std::size_t>(size));
  const auto slot = [&](int after) { return slots + bytes * static_cast<std::size_t>(after); };

  // Slot j is for what the j-th rank after this one contributes.
  copy_bytes(slot(0), job.own, bytes);
  for (int known = 1; known < size; known *= 2) {
    const std::size_t news = bytes * static_cast<std::size_t>(std::min(known, size - known));
    transport.exchange(
        {.peer = (rank - known + size) % size, .bytes = {slots, news}},
        {.peer = (rank + known) % size, .size = news, .into = slot(known), .sink = {}}, deadline);
  }

  const auto contribution = [&](int r) -> const std::byte* {
    const int after = (r - rank + size) % size;
    return after == 0 ? job.own : slot(after);
  };
  for (int k = 0; k < size; ++k) {  // in the order of plan_ring
    const std::size_t offset = job.offset(k);
    const std::byte* partial = contribution((k + 1) % size) + offset;
    for (int hop = 2; hop <= size; ++hop) {
      // Slot 0 has gone out and is free for what is not complete: `result` may be `own`.
      std::byte* const to = (hop == size ? job.result : slot(0)) + offset;
      reduce(job.elements.dtype(), job.elements.op(), to, contribution((k + hop) % size) + offset,
             partial, job.count(k) * job.elements.lanes());
      partial = to;
    }
  }
  job.elements.finish(job.result, job.bounds.back());
}

}  // namespace hvd
