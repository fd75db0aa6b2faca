// Every rank's contribution to a chunk, reduced, on the rank that owns the chunk.
#pragma once

#include <cstddef>
#include <functional>

#include <hvd/core/types.hpp>
#include <hvd/ops/transport.hpp>

#include "fusion/buffer.hpp"
#include "ring/plan.hpp"
#include "ring/reduction.hpp"

namespace hvd {

/// Where what is reduced of a chunk goes in a step; what the step before put elsewhere is being
/// sent meanwhile.
using PartialPlace = std::function<std::byte*(std::size_t step, int chunk)>;

/// The first half of the ring. Afterwards this rank's chunk is complete and finished where the last
/// step put it, or in `job.result` when there is one rank only.
void reduce_around(Transport& transport, const RingPlan& plan, const Reduction& job,
                   const PartialPlace& place, Deadline deadline);

/// Each rank sends (n-1)/n of the bytes. `job.result` holds this rank's chunk only; `partials`
/// twice the largest chunk.
void ring_reduce_scatter(Transport& transport, const RingPlan& plan, const Reduction& job,
                         FusionBuffer& partials, Deadline deadline);

}  // namespace hvd
