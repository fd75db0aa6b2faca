// Lets ranks find each other in NCCL.
#pragma once

#include <nccl.h>

#include <hvd/core/internal/backend.hpp>

#include "nccl/gpu_choice.hpp"

namespace hvd::detail {

/// Returns the id of the first rank on every rank, over `host`, which has the same ranks.
/// `rank_in_context` is this rank's, which differs from `self.rank` in a process set. Collective.
/// Throws Errc::unsupported on every rank when two of them have the same GPU.
[[nodiscard]] ncclUniqueId meet(Backend& host, const GpuRank& self, int rank_in_context,
                                Deadline deadline);

}  // namespace hvd::detail
