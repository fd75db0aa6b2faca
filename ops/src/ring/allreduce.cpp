#include "ring/allreduce.hpp"

#include "reduce/reduce.hpp"
#include "reduce/scale.hpp"
#include "ring/all_gather.hpp"

namespace hvd {

void finish(const Reduction& job, std::byte* data, std::int64_t count, int ranks) {
  if (job.divide) {
    finish_average(job.dtype, data, count * job.lanes, ranks, job.postscale);
  } else {
    scale(job.dtype, data, data, count * job.lanes, job.postscale);
  }
}

void ring_allreduce(Transport& transport, const RingPlan& plan, const Reduction& job,
                    Deadline deadline) {
  const std::size_t element = job.element_size();
  const std::size_t value = size_of(job.dtype);
  const auto offset_of = [&](int k) {
    return static_cast<std::size_t>(job.bounds[static_cast<std::size_t>(k)]) * element;
  };
  const std::byte* sent_from = job.own;  // afterwards: what has been reduced so far
  for (const RingStep& step : plan.reduce_scatter) {
    const std::size_t send = offset_of(step.send);
    const std::size_t receive = offset_of(step.receive);
    const auto combine = [&](std::size_t offset, std::span<const std::byte> bytes) {
      reduce(job.dtype, job.op, job.result + receive + offset, job.own + receive + offset,
             bytes.data(), static_cast<std::int64_t>(bytes.size() / value));
    };
    transport.exchange(
        {.peer = plan.next, .bytes = {sent_from + send, offset_of(step.send + 1) - send}},
        {.peer = plan.previous,
         .size = offset_of(step.receive + 1) - receive,
         .into = nullptr,
         .sink = [&combine](std::size_t offset, auto bytes) { combine(offset, bytes); },
         .granularity = value},
        deadline);
    sent_from = job.result;
  }
  const auto rank = static_cast<std::size_t>(transport.rank());
  finish(job, job.result + offset_of(transport.rank()), job.bounds[rank + 1] - job.bounds[rank],
         transport.size());
  ring_all_gather(transport, plan, job.result, job.bounds, element, deadline);
}

}  // namespace hvd
