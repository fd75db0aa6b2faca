// Allreduce over contiguous memory: the two ways to run it, which give the same bits.
#pragma once

#include <cstddef>

#include <hvd/core/types.hpp>
#include <hvd/ops/transport.hpp>

#include "fusion/buffer.hpp"
#include "ring/plan.hpp"
#include "ring/reduction.hpp"

namespace hvd {

/// Reduce-scatter, then all-gather: each rank sends 2(n-1)/n of the bytes. The owner of a chunk
/// divides and scales it, once, before it is gathered. `job.result` has room for all chunks.
void ring_allreduce(Transport& transport, const RingPlan& plan, const Reduction& job,
                    Deadline deadline);

/// Every rank gets every contribution in ceil(log2 n) turns, in each of which it learns as many
/// more as it knows (Bruck, Ho, Kipnis, Upfal & Weathersby 1997, "Efficient algorithms for
/// all-to-all communications", section 4: any number of ranks), and reduces all of it, each chunk
/// in the ring's order: more bytes, fewer turns. For small messages; `scratch` holds ranks · bytes.
void doubling_allreduce(Transport& transport, const Reduction& job, FusionBuffer& scratch,
                        Deadline deadline);

}  // namespace hvd
