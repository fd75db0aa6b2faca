// Implements the algorithms of the collectives as loops over `Transport::exchange`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hvd/core/internal/backend.hpp>
#include <hvd/core/types.hpp>
#include <hvd/ops/internal/transport.hpp>

#include "fusion/accumulator.hpp"
#include "fusion/buffer.hpp"
#include "ring/plan.hpp"

namespace hvd::detail {

/// Describes a reduction of contiguous memory in one chunk per rank.
struct Reduction {
  Accumulator elements;
  std::span<const std::int64_t> bounds;  ///< of the chunks, in elements: one more than ranks
  const std::byte* own = nullptr;        ///< this rank's contribution to all chunks
  std::byte* result = nullptr;           ///< may be `own`, or a part of it

  [[nodiscard]] std::int64_t count(int chunk) const noexcept {
    const auto k = static_cast<std::size_t>(chunk);
    return bounds[k + 1] - bounds[k];
  }
  /// Returns the offset of a chunk in `own`, in bytes. `size` and `bytes` count bytes too.
  [[nodiscard]] std::size_t offset(int chunk) const noexcept {
    return static_cast<std::size_t>(bounds[static_cast<std::size_t>(chunk)]) *
           elements.element_size();
  }
  [[nodiscard]] std::size_t size(int chunk) const noexcept {
    return static_cast<std::size_t>(count(chunk)) * elements.element_size();
  }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(bounds.back()) * elements.element_size();
  }
};

/// Runs a reduce-scatter around the ring and then an all-gather: each rank sends 2(n-1)/n of the
/// bytes. The owner of a chunk divides and scales it, once, before it is gathered. `job.result` has
/// room for all chunks.
void ring_allreduce(Transport& transport, const RingPlan& plan, const Reduction& job,
                    Deadline deadline);

/// Runs an all-gather of the contributions by recursive doubling, for any number of ranks (Bruck,
/// Ho, Kipnis, Upfal & Weathersby 1997, "Efficient algorithms for all-to-all communications",
/// section 4): in each of ceil(log2 n) turns a rank receives as many more as it has. Then every
/// rank reduces all of them, each chunk in the ring's order, so that the bits are those of
/// `ring_allreduce`. More bytes in fewer turns suit small messages. `scratch` holds ranks · bytes.
void doubling_allreduce(Transport& transport, const Reduction& job, FusionBuffer& scratch,
                        Deadline deadline);

/// Reduces each chunk on the rank that owns it: each rank sends (n-1)/n of the bytes. `job.result`
/// holds this rank's chunk only; `partials` holds twice the largest chunk.
void ring_reduce_scatter(Transport& transport, const RingPlan& plan, const Reduction& job,
                         FusionBuffer& partials, Deadline deadline);

/// Sends every rank's block to every rank, in place. Block r is [bounds[r], bounds[r+1]) times
/// `unit` bytes of `data`; rank r has it before, and every rank afterwards. Blocks may be empty and
/// of any size.
void ring_all_gather(Transport& transport, const RingPlan& plan, std::byte* data,
                     std::span<const std::int64_t> bounds, std::size_t unit, Deadline deadline);

/// Sends `size` bytes from the root's `data` to the others'. Small messages go down a binomial
/// tree, large ones in segments along a chain, in which every rank sends one segment while it
/// receives the next.
void broadcast_bytes(Transport& transport, std::byte* data, std::size_t size, int root,
                     Deadline deadline);

/// Runs a pairwise exchange (Thakur, Rabenseifner & Gropp 2005, section 4.3) in n-1 turns: in turn
/// d every rank sends to the rank d after it and receives from the rank d before it. Each block
/// goes straight from its sender to its receiver.
void pairwise_all_to_all(Transport& transport, const AlltoallCall& call, Deadline deadline);

/// Runs a dissemination barrier (Hensgen, Finkel & Manber 1988) in ceil(log2 n) turns of one byte.
void dissemination_barrier(Transport& transport, Deadline deadline);

}  // namespace hvd::detail
