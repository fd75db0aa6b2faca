// Nobody leaves before everybody has come.
#pragma once

#include <hvd/core/types.hpp>
#include <hvd/ops/transport.hpp>

namespace hvd {

/// Dissemination barrier (Hensgen, Finkel & Manber 1988): ceil(log2 n) turns of one byte each.
void dissemination_barrier(Transport& transport, Deadline deadline);

}  // namespace hvd
