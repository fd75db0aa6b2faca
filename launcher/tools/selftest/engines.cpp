#include "engines.hpp"

#include <algorithm>
#include <utility>

#include <hvd/core/internal/session.hpp>
#include <hvd/ops/internal/backends.hpp>

namespace hvd::selftest {
namespace {

/// Makes a context without the native engine, since a context that falls back to it would not test
/// MPI.
std::unique_ptr<Context> make_mpi_context(const Config& config) {
  auto session = std::make_unique<Session>(config);
  std::vector<std::unique_ptr<Backend>> backends;
  if (auto mpi = make_mpi_backend(*session)) backends.push_back(std::move(mpi));
  if (backends.empty()) return nullptr;
  return std::make_unique<Context>(std::move(session), std::move(backends));
}

}  // namespace

std::vector<Engine> engines_of(const Topology& topology, const Config& config) {
  std::vector<Engine> engines = {
      {"as configured", [](const Config& own) { return make_context(own); }}};
  if (topology.size == 1) return engines;
  const bool one_host = std::all_of(topology.host_of.begin(), topology.host_of.end(),
                                    [](int host) { return host == 0; });
  const auto native = [](std::string transport) {
    return [transport = std::move(transport)](Config own) {
      own.backend = "native";
      own.transport = transport;
      return make_context(own);
    };
  };
  if (one_host) engines.push_back({"shared memory", native("shm")});
  engines.push_back({"TCP", native("tcp")});
  // The ranks of MPI_COMM_WORLD are those of this job only where mpirun, or srun with PMIx, has
  // started them.
  if (config.rendezvous == Rendezvous::pmix) engines.push_back({"MPI", make_mpi_context});
  return engines;
}

}  // namespace hvd::selftest
