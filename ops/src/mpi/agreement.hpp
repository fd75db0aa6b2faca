// How all ranks agree whether they can use MPI. Builds without MPI take part, since the others have
// to know.
#pragma once

#include <string>

#include <hvd/core/session.hpp>

namespace hvd::detail {

/// Returns the same on every rank. When it is false, rank 0 has logged which rank cannot use MPI,
/// and why. `trouble` says why this rank cannot, and is empty when it can. Collective.
[[nodiscard]] bool all_can_use_mpi(const Session& session, const std::string& trouble);

}  // namespace hvd::detail
