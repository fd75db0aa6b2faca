// Contexts of the ranks of a communicator.
#include <hvd/mpi.hpp>

#include "default_context.hpp"
#include "make_context.hpp"
#include "mpi/make_mpi.hpp"
#include "mpi/mpi_meeting.hpp"

namespace hvd {

std::unique_ptr<Context> make_context(const Config& config, MPI_Comm comm) {
  MpiMeeting meeting = meet_over_mpi(config, comm);
  return compose_context(meeting.config, std::move(meeting.store),
                         [comm](Session& session) { return make_mpi_backend(session, comm); });
}

void init(MPI_Comm comm, const Config& config) {
  init_default_context(config,
                       [comm](const Config& settings) { return make_context(settings, comm); });
}

}  // namespace hvd
