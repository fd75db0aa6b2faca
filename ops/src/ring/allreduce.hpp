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

/// Every rank gets every contribution and reduces all of it, each chunk in the ring's order: more
/// bytes, fewer turns. For small messages; `scratch` holds ranks · bytes.
void one_shot_allreduce(Transport& transport, const Reduction& job, FusionBuffer& scratch,
                        Deadline deadline);

/// Whether `one_shot_allreduce` is expected to be faster. The same on every rank.
[[nodiscard]] bool prefers_one_shot(std::size_t bytes, int ranks) noexcept;

}  // namespace hvd
