#include "support/engines.hpp"

#include <algorithm>
#include <utility>

#include <hvd/core/topology.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "ring/ring_backend.hpp"

namespace hvd::test {
namespace {

/// Distributes the ranks over hosts as `seed` says. Hosts are numbered by their first ranks.
std::unique_ptr<Backend> make_hosts(std::unique_ptr<Transport> transport, std::uint64_t seed) {
  Topology topology;
  topology.rank = transport->rank();
  topology.size = transport->size();
  int hosts = 0;
  for (int rank = 0; rank < topology.size; ++rank) {
    const auto host = static_cast<int>((seed + static_cast<std::uint64_t>(rank * rank)) % 3);
    topology.host_of.push_back(std::min(host, hosts));
    if (topology.host_of.back() == hosts) ++hosts;
  }
  auto ring = detail::make_ring_backend(std::move(transport), topology.host_of);
  return make_hierarchical_backend(std::move(ring), nullptr, topology, soon());
}

}  // namespace

void Engine::run(int ranks, std::uint64_t hosts, const BackendBody& body, std::size_t arena) const {
  if (made == Made::ring || made == Made::hosts) {
    return expect_ranks(kind, ranks, [&](int rank, std::unique_ptr<Transport> transport) {
      const auto backend = made == Made::ring ? make_ring_backend(std::move(transport))
                                              : make_hosts(std::move(transport), hosts);
      body(rank, *backend, nullptr);
    });
  }
  expect_host_ranks(
      ranks,
      [&](int rank, HostEngine& engine) {
        body(rank, *engine.backend, made == Made::host_arena ? engine.arena : nullptr);
      },
      arena);
}

}  // namespace hvd::test
