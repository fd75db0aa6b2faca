// Whether all ranks can use what only some may be able to use.
#pragma once

#include <string>
#include <string_view>

namespace hvd {

class Session;

/// `trouble` is why this rank cannot use MPI, empty when it can. True on every rank or on none;
/// then rank 0 has said who cannot, and why. Collective.
[[nodiscard]] bool all_can_use_mpi(Session& session, const std::string& trouble);

}  // namespace hvd
