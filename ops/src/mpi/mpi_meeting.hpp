// How the ranks of a communicator find each other: over the communicator.
#pragma once

#include <memory>

#include <mpi.h>

#include <hvd/core/config.hpp>
#include <hvd/core/fd.hpp>
#include <hvd/core/store.hpp>

namespace hvd {

struct MpiMeeting {
  Config config;                 ///< with the communicator's rank and size, and a job of its own
  std::shared_ptr<Store> store;  ///< of the communicator's ranks; lives in rank 0
  UniqueFd secret;               ///< what `config.secret_fd` names
};

/// Rank 0 serves a store; its address and a random secret are broadcast. Collective over `comm`, on
/// the thread that may call MPI. Throws Errc::invalid_argument for what is no group of ranks,
/// Errc::unsupported when MPI cannot be called here, and rank 0's error when it cannot listen.
[[nodiscard]] MpiMeeting meet_over_mpi(const Config& config, MPI_Comm comm);

}  // namespace hvd
