// Lets ranks find each other in NCCL.
#pragma once

#include <nccl.h>

#include <hvd/core/internal/backend.hpp>

#include "nccl/gpu_choice.hpp"

namespace hvd::detail {

/// Returns the id of the first rank on every rank, over `host`, which has the same ranks.
/// Collective. Throws Errc::unsupported on every rank when two of them have the same GPU.
[[nodiscard]] ncclUniqueId meet(Backend& host, const GpuRank& self, Deadline deadline);

}  // namespace hvd::detail
