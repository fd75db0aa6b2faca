// Makes the MPI backend for the ranks of a communicator.
#pragma once

#include <memory>

#include <mpi.h>

#include <hvd/core/internal/backend.hpp>
#include <hvd/core/internal/session.hpp>

namespace hvd::detail {

/// Does what `make_mpi_backend(session)` does, on a duplicate of `comm`.
[[nodiscard]] std::unique_ptr<Backend> make_mpi_backend(Session& session, MPI_Comm comm);

}  // namespace hvd::detail
