// Every rank's block to every rank, in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hvd/core/types.hpp>
#include <hvd/ops/transport.hpp>

#include "ring/plan.hpp"

namespace hvd {

/// Block r, [bounds[r], bounds[r+1]) times `unit` bytes of `data`, is there on rank r before and on
/// every rank afterwards. Blocks may be empty and of any size.
void ring_all_gather(Transport& transport, const RingPlan& plan, std::byte* data,
                     std::span<const std::int64_t> bounds, std::size_t unit, Deadline deadline);

}  // namespace hvd
