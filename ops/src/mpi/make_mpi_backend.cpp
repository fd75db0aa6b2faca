// The MPI backend of a session.
#include <utility>

#include <fmt/format.h>

#include <hvd/core/session.hpp>
#include <hvd/ops/backends.hpp>

#include "mpi/mpi_backend.hpp"

namespace hvd {

std::unique_ptr<Backend> make_mpi_backend(Session& session) {
  auto use = std::make_unique<MpiUse>();
  const Topology& topology = session.topology();
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank != topology.rank || size != topology.size) {
    throw Error(Errc::unsupported,
                fmt::format("MPI says rank {} of {}, the job rank {} of {}: start all ranks with "
                            "mpirun, or leave HVD_BACKEND=mpi out",
                            rank, size, topology.rank, topology.size));
  }
  return std::make_unique<MpiBackend>(std::move(use), MPI_COMM_WORLD, session.start_deadline());
}

}  // namespace hvd
