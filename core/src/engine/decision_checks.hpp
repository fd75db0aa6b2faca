// Checks what rank 0 has decided before this rank relies on it, so that a rank 0 that errs or lies
// ends the job with an error, and makes no rank use memory that it does not have.
#pragma once

#include <string>
#include <vector>

#include "engine/local_batch.hpp"
#include "policy/frozen_schedule.hpp"

namespace hvd::detail {

/// Returns what is wrong with a negotiated batch, which has a tensor, or an empty text. `members`
/// are those of its process set, ascending, and `rank` is this rank.
[[nodiscard]] std::string problem_with(const LocalBatch& batch, const std::vector<int>& members,
                                       int rank);

/// Returns what is wrong with a plan for a context of `size` ranks, or an empty text. The rest is
/// compared when this rank submits its operations.
[[nodiscard]] std::string problem_with(const FrozenSchedule& plan, int size);

}  // namespace hvd::detail
