// Makes the MPI backend of a session, or the transport alone.
#include <utility>

#include <fmt/format.h>

#include <hvd/core/log.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "mpi/agreement.hpp"
#include "mpi/make_mpi.hpp"
#include "mpi/mpi_backend.hpp"
#include "mpi/mpi_chosen_backend.hpp"
#include "mpi/mpi_transport.hpp"
#include "ring/ring_backend.hpp"
#include "tuning/agree_on_plan.hpp"

namespace hvd::detail {
namespace {

/// Throws Errc::unsupported when MPI cannot be used here, or when `comm` has other ranks than the
/// job.
std::shared_ptr<MpiUse> use_mpi(const Topology& topology, MPI_Comm comm) {
  auto use = std::make_shared<MpiUse>();
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  if (rank != topology.rank || size != topology.size) {
    throw Error(Errc::unsupported,
                fmt::format("MPI says rank {} of {}, the job rank {} of {}: start all ranks with "
                            "mpirun, or leave HVD_BACKEND=mpi out",
                            rank, size, topology.rank, topology.size));
  }
  return use;
}

std::shared_ptr<const MpiComm> duplicate(MPI_Comm comm, MpiUse& use, Deadline deadline) {
  std::shared_ptr<const MpiComm> own;
  use.guard([&] {
    Watch watch(deadline, use.abort_flag(), "init", "MPI");
    own = std::make_shared<const MpiComm>(comm, watch);
  });
  return own;
}

AlgorithmPlan agree(Backend& collective, Backend& ring, Session& session) {
  const Topology& topology = session.topology();
  if (topology.size == 1) return mpi_plan({});
  const auto measured = [&] {
    const auto timings = measure_mpi(
        collective, ring,
        {.rank = topology.rank, .size = topology.size, .deadline = session.start_deadline()});
    if (topology.rank == 0) {
      for (const Timing& timing : timings) {
        log(LogLevel::plan, 0,
            describe(timing, kMpiCandidates, AlgorithmTable(Algorithm::collective)));
      }
    }
    return mpi_plan(timings);
  };
  return agree_on_plan(session, {.engine = "mpi", .defaults = mpi_plan({}), .measure = measured});
}

}  // namespace

std::unique_ptr<Backend> make_mpi_backend(Session& session, MPI_Comm comm) {
  std::shared_ptr<MpiUse> use;
  std::string trouble;
  try {
    use = use_mpi(session.topology(), comm);
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
    trouble = error.what();
  }
  if (!all_can_use_mpi(session, trouble)) return nullptr;
  const auto own = duplicate(comm, *use, session.start_deadline());
  auto ring =
      make_ring_backend(std::make_unique<MpiTransport>(use, own), session.topology().host_of);
  auto collective = std::make_unique<MpiBackend>(std::move(use), own);
  const MpiTables tables(agree(*collective, *ring, session));
  return std::make_unique<MpiChosenBackend>(std::move(collective), std::move(ring), tables);
}

}  // namespace hvd::detail

namespace hvd {

using namespace detail;

std::unique_ptr<Backend> make_mpi_backend(Session& session) {
  return make_mpi_backend(session, MPI_COMM_WORLD);
}

std::unique_ptr<Transport> make_mpi_transport(Session& session) {
  auto use = use_mpi(session.topology(), MPI_COMM_WORLD);
  auto own = duplicate(MPI_COMM_WORLD, *use, session.start_deadline());
  return std::make_unique<MpiTransport>(std::move(use), std::move(own));
}

}  // namespace hvd
