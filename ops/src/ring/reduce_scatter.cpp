#include "ring/reduce_scatter.hpp"

#include <algorithm>

#include "fusion/copy_bytes.hpp"
#include "reduce/reduce.hpp"

namespace hvd {

void reduce_around(Transport& transport, const RingPlan& plan, const Reduction& job,
                   const PartialPlace& place, Deadline deadline) {
  const Accumulator& elements = job.elements;
  const std::size_t value = size_of(elements.dtype());
  const std::byte* outgoing = nullptr;  // what the last step has reduced
  std::byte* to = job.result;
  for (std::size_t s = 0; s < plan.reduce_scatter.size(); ++s) {
    const RingStep& step = plan.reduce_scatter[s];
    const std::byte* const own = job.own + job.offset(step.receive);
    to = place(s, step.receive);
    const auto combine = [&](std::size_t offset, std::span<const std::byte> bytes) {
      reduce(elements.dtype(), elements.op(), to + offset, own + offset, bytes.data(),
             static_cast<std::int64_t>(bytes.size() / value));
    };
    transport.exchange(
        {.peer = plan.next,
         .bytes = {s == 0 ? job.own + job.offset(step.send) : outgoing, job.size(step.send)}},
        {.peer = plan.previous,
         .size = job.size(step.receive),
         .into = nullptr,
         .sink = [&combine](std::size_t offset, auto bytes) { combine(offset, bytes); },
         .granularity = value},
        deadline);
    outgoing = to;
  }
  const int rank = transport.rank();
  if (transport.size() == 1) copy_bytes(to, job.own, job.size(rank));
  elements.finish(to, job.count(rank));
}

void ring_reduce_scatter(Transport& transport, const RingPlan& plan, const Reduction& job,
                         FusionBuffer& partials, Deadline deadline) {
  std::size_t largest = 0;
  for (int k = 0; k < transport.size(); ++k) largest = std::max(largest, job.size(k));
  // One partial result is on its way out while the next comes in.
  std::byte* const slots = partials.reserve(2 * largest);
  const auto place = [&](std::size_t step, int chunk) {
    return chunk == transport.rank() ? job.result : slots + step % 2 * largest;
  };
  reduce_around(transport, plan, job, place, deadline);
}

}  // namespace hvd
