// Every operation of the NCCL backend against the serial reference: the same on the fake and on a
// GPU.
#pragma once

#include "support/backend_checks.hpp"

namespace hvd::test {

/// One rank's side. Results that are wrong fail the current test, naming the rank.
void check_every_reduction(BackendChecks checks);
void check_scales(BackendChecks checks);
/// Needs the kernel.
void check_integer_scales(BackendChecks checks);
void check_broadcasts(BackendChecks checks);
void check_allgathers(BackendChecks checks);
void check_reducescatters(BackendChecks checks);
void check_alltoalls(BackendChecks checks);
void check_absent_ranks(BackendChecks checks);
/// What NCCL cannot do is refused before anything is launched, and the backend stays usable.
void check_refusals(BackendChecks checks);

}  // namespace hvd::test
