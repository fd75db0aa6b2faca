#include "mpi/mpi_comm.hpp"

#include "mpi/mpi_error.hpp"
#include "mpi/mpi_process.hpp"

namespace hvd {

MpiComm::MpiComm(MPI_Comm parent, Watch& watch) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(parent, &comm_, &request), "MPI_Comm_idup", watch);
  complete(request, "MPI_Comm_idup", watch);
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", watch);
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank", watch);
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size", watch);
}

MpiComm::~MpiComm() {
  if (comm_ != MPI_COMM_NULL && MpiUse::alive()) MPI_Comm_free(&comm_);
}

void complete(MPI_Request request, std::string_view call, Watch& watch) {
  for (;;) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call, watch);
    if (done != 0) return;
    watch.pause();
  }
}

}  // namespace hvd
