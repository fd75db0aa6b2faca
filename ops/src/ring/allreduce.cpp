#include "ring/allreduce.hpp"

#include "ring/all_gather.hpp"
#include "ring/reduce_scatter.hpp"

namespace hvd {

void ring_allreduce(Transport& transport, const RingPlan& plan, const Reduction& job,
                    Deadline deadline) {
  const auto place = [&](std::size_t, int chunk) { return job.result + job.offset(chunk); };
  reduce_around(transport, plan, job, place, deadline);
  ring_all_gather(transport, plan, job.result, job.bounds, job.elements.element_size(), deadline);
}

}  // namespace hvd
