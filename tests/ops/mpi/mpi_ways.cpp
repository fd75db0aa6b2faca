#include "mpi_ways.hpp"

#include <atomic>
#include <utility>
#include <vector>

#include <hvd/core/topology.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "mpi/mpi_chosen_backend.hpp"
#include "support/backend_checks.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test

/// Alternates between the algorithms for small, middle and large sizes, so that every kind uses
/// both.
MpiTables alternating() {
  AlgorithmPlan plan;
  for (const OpKind kind :
       {OpKind::allreduce, OpKind::allgather, OpKind::broadcast, OpKind::reducescatter}) {
    plan.set(AlgorithmPlan::mpi(kind),
             AlgorithmTable::parse("collective,512:ring,65536:collective"));
  }
  return MpiTables(plan);
}

Topology two_a_host(int rank, int size) {
  Topology topology;
  topology.rank = rank;
  topology.size = size;
  for (int other = 0; other < size; ++other) topology.host_of.push_back(other / 2);
  return topology;
}

}  // namespace

std::string to_string(Way way) {
  switch (way) {
    case Way::collective:
      return "collective";
    case Way::ring:
      return "ring";
    case Way::chosen:
      return "chosen";
    case Way::hierarchical:
      return "hierarchical";
  }
  return "";
}

std::unique_ptr<Backend> make_backend(Way way, const WayOptions& options) {
  const auto use = std::make_shared<MpiUse>();
  const std::atomic<bool> never{false};
  Watch watch(soon(), never, "init", "MPI");
  const auto comm = std::make_shared<const MpiComm>(MPI_COMM_WORLD, watch);
  auto collective = std::make_unique<MpiBackend>(use, comm, options.collective);
  if (way == Way::collective) return collective;
  auto ring = make_ring_backend(std::make_unique<MpiTransport>(use, comm, options.ring));
  if (way == Way::ring) return ring;
  auto chosen =
      std::make_unique<MpiChosenBackend>(std::move(collective), std::move(ring), alternating());
  if (way == Way::chosen) return chosen;
  return make_hierarchical_backend(std::move(chosen), nullptr,
                                   two_a_host(comm->rank(), comm->size()), soon());
}

std::unique_ptr<MpiTransport> make_transport(const MpiTransportOptions& options) {
  auto use = std::make_shared<MpiUse>();
  const std::atomic<bool> never{false};
  Watch watch(soon(), never, "init", "MPI");
  auto comm = std::make_shared<const MpiComm>(MPI_COMM_WORLD, watch);
  return std::make_unique<MpiTransport>(std::move(use), std::move(comm), options);
}

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

}  // namespace hvd::test
