// MPI's error codes as hvd::Error.
#pragma once

#include <string_view>

#include "polling/watch.hpp"

namespace hvd {

/// Throws Errc::resource, Errc::internal for a call that MPI finds wrong, else Errc::peer_lost (MPI
/// does not say which), with MPI's text. `call` names the function.
void check_mpi(int result, std::string_view call, const Watch& watch);

}  // namespace hvd
