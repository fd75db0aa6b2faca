// Lets all ranks agree whether they can use MPI. A build without MPI takes part too, since the
// other ranks have to know that it cannot use MPI.
#pragma once

#include <string>

#include <hvd/core/internal/session.hpp>

namespace hvd::detail {

/// Returns on every rank whether all ranks can use MPI. When it is false, rank 0 has logged which
/// rank cannot, and why. `trouble` says why this rank cannot, and is empty when it can. Collective.
[[nodiscard]] bool all_can_use_mpi(const Session& session, const std::string& trouble);

}  // namespace hvd::detail
