// Checks what rank 0 has decided before this rank relies on it, so that a rank 0 that errs or lies
// ends the job with an error, and makes no rank use memory that it does not have.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/local_batch.hpp"
#include "policy/frozen_schedule.hpp"

namespace hvd::detail {

/// Returns what is wrong with a negotiated batch, which has at least one tensor, or an empty text.
/// `members` are those of its process set, ascending, and `rank` is this rank.
[[nodiscard]] std::string problem_with(const LocalBatch& batch, const std::vector<int>& members,
                                       int rank);

/// Returns the members of a process set, ascending, or nothing if there is no such set.
using MembersOf = std::function<std::vector<int>(std::int32_t process_set)>;

/// Returns what is wrong with a plan, or an empty text. Whether its requests
/// and rows are those of this rank is checked later, when the rank submits its operations.
[[nodiscard]] std::string problem_with(const FrozenSchedule& plan, const MembersOf& members_of);

}  // namespace hvd::detail
