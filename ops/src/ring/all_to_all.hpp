// A part of every rank's bytes to every rank.
#pragma once

#include <hvd/core/backend.hpp>
#include <hvd/ops/transport.hpp>

namespace hvd {

/// Pairwise exchange (Thakur, Rabenseifner & Gropp 2005, section 4.3): n-1 turns; in turn d to the
/// rank d after this one and from the rank d before. Every byte travels once.
void pairwise_all_to_all(Transport& transport, const AlltoallCall& call, Deadline deadline);

}  // namespace hvd
