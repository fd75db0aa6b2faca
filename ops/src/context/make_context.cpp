// Composes a context. Rank 0 decides for all ranks which transport and backends are used.
#include "context/make_context.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/internal/backend.hpp>
#include <hvd/core/internal/ready_fence.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/hvd.hpp>
#include <hvd/ops/internal/backends.hpp>
#include <hvd/ops/internal/ready_fence.hpp>

#include "hierarchy/hierarchical_backend.hpp"
#include "hierarchy/host_plan.hpp"
#include "host/segment.hpp"
#include "ring/ring_backend.hpp"
#include "shm/descriptors.hpp"
#include "tuning/agree_on_plan.hpp"
#include "tuning/link_cost.hpp"

namespace hvd::detail {
namespace {

void require_known(std::string_view variable, const std::string& value,
                   std::initializer_list<std::string_view> known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  throw Error(Errc::invalid_argument,
              fmt::format("{}={}: expected one of {}", variable, value, fmt::join(known, ", ")));
}

constexpr std::string_view kMpi = "mpi";

bool on_one_host(const Topology& topology) {
  const std::vector<int>& hosts = topology.host_of;
  return std::all_of(hosts.begin(), hosts.end(), [](int host) { return host == 0; });
}

// Ranks that share memory map that of all others, and each looks at all others in every collective.
// With this many ranks on two cores, an allreduce over shared memory was 2.5 to 7.7 times as fast
// as over TCP; hvd_bench with twice as many did not fit into 24 GiB
// (docs/internals/host-engine.md).
constexpr int kMostSharing = 256;

// More ranks of a host than this share its cores, so a measurement of the ring would measure the
// scheduler.
constexpr int kMostMeasured = 128;

/// Returns the number of ranks on the host that has the most.
int most_on_a_host(const Topology& topology) {
  std::vector<int> ranks(static_cast<std::size_t>(topology.size));
  for (const int host : topology.host_of) ++ranks[static_cast<std::size_t>(host)];
  return *std::max_element(ranks.begin(), ranks.end());
}

std::string native_engine(const Session& session) {
  if (session.config().transport != "auto") return session.config().transport;
  const Topology& topology = session.topology();
  return on_one_host(topology) && topology.size <= kMostSharing ? "shm" : "tcp";
}

/// Returns what this rank would use for host memory: "shm", "tcp" or "mpi".
std::string choose_engine(const Session& session) {
  return session.config().backend == kMpi ? std::string(kMpi) : native_engine(session);
}

// Several streams use a link between hosts better than one, and compete better with other traffic.
constexpr int kStreamsBetweenHosts = 4;
// Within a host, one stream can be read while the other is being filled.
constexpr int kStreamsWithinHost = 2;

/// Holds what all ranks use.
struct Decisions {
  std::string engine;   ///< "shm", "tcp" or "mpi"
  int tcp_streams = 0;  ///< per neighbour
};

/// Collective. Throws Errc::mismatch where settings differ between ranks, instead of hanging later.
Decisions agree_on_engine(const Session& session) {
  // The native engine matters with HVD_BACKEND=mpi too: it decides on the fence, and replaces MPI
  // where a rank cannot use it.
  const std::string own = fmt::format("HVD_BACKEND={}, native engine {}, HVD_CONTROL_FANOUT={}",
                                      session.config().backend, native_engine(session),
                                      session.config().control_fanout);
  const std::string answer = session.bootstrap().share("engine", [&] {
    int streams = session.config().tcp_streams;
    if (streams == 0) {
      streams = on_one_host(session.topology()) ? kStreamsWithinHost : kStreamsBetweenHosts;
    }
    return fmt::format("{} {}", streams, own);
  });
  std::size_t space = 0;
  const int streams = std::stoi(answer, &space);
  const std::string theirs = answer.substr(space + 1);
  if (theirs != own) {
    throw Error(Errc::mismatch,
                fmt::format("rank 0 has {} and rank {} has {}: HVD_BACKEND, HVD_TRANSPORT and "
                            "HVD_CONTROL_FANOUT must be the same on all ranks",
                            theirs, session.topology().rank, own));
  }
  return {choose_engine(session), streams};
}

/// Returns the plan of a ring where a host has more than `kMostMeasured` ranks. Each turn then
/// costs so much that the few turns of doubling pay up to its limit (docs/internals/engine.md has
/// the figures).
AlgorithmPlan plan_of_crowded_hosts() {
  return AlgorithmPlan().set(
      AlgorithmPlan::kRing,
      AlgorithmTable(Algorithm::doubling).from(kMostByDoubling + 1, Algorithm::ring));
}

/// Makes a ring over all ranks.
std::unique_ptr<Backend> make_planned_ring(Session& session, std::unique_ptr<RingBackend> ring) {
  const AlgorithmPlan defaults =
      AlgorithmPlan().set(AlgorithmPlan::kRing, RingBackend::default_table());
  const AlgorithmPlan plan = agree_on_plan(
      session, {.engine = ring->transport_name(), .defaults = defaults, .measure = [&] {
                  return most_on_a_host(session.topology()) > kMostMeasured
                             ? plan_of_crowded_hosts()
                             : measure_ring(session, *ring);
                }});
  ring->use(plan.of(AlgorithmPlan::kRing, RingBackend::default_table()));
  return ring;
}

/// Makes an engine that uses `flat` between hosts and shared memory within them. `ring` is the part
/// of `flat` that has a plan of its own, or null.
HostEngine make_hosts(Session& session, std::string_view engine, std::unique_ptr<Backend> flat,
                      RingBackend* ring) {
  const Topology& topology = session.topology();
  HostEngine host;  // a rank that is alone on its host has no engine within it
  if (ranks_here(topology).size() > 1) host = make_host_engine(session);
  auto hosts = compose_hierarchy(std::move(flat), std::move(host.backend), topology,
                                 session.start_deadline());
  AlgorithmPlan defaults =
      AlgorithmPlan().set(AlgorithmPlan::kHosts, HierarchicalBackend::default_table());
  if (ring) defaults.set(AlgorithmPlan::kRing, RingBackend::default_table());
  const AlgorithmPlan plan =
      agree_on_plan(session, {.engine = engine, .defaults = defaults, .measure = [&] {
                                return measure_hosts(session, *hosts);
                              }});
  hosts->use(plan.of(AlgorithmPlan::kHosts, HierarchicalBackend::default_table()));
  if (ring) ring->use(plan.of(AlgorithmPlan::kRing, RingBackend::default_table()));
  host.backend = std::move(hosts);
  host.fence.reset();  // other hosts cannot take part in it
  return host;
}

// Each rank has a cache line or more of every slot.
constexpr int kMostMapped = HostSlots::kChunk / 64;

void require_shared_memory(const Topology& topology) {
  const auto other = std::find_if(topology.host_of.begin(), topology.host_of.end(),
                                  [](int host) { return host != 0; });
  if (other != topology.host_of.end()) {
    throw Error(Errc::unsupported, fmt::format("HVD_TRANSPORT=shm, but rank {} is on another host",
                                               other - topology.host_of.begin()));
  }
  if (topology.size > kMostMapped) {
    throw Error(Errc::unsupported, fmt::format("HVD_TRANSPORT=shm, but {} ranks are more than {}",
                                               topology.size, kMostMapped));
  }
}

/// Makes the engine without MPI.
HostEngine make_native_engine(Session& session, const std::string& engine, int tcp_streams) {
  const Topology& topology = session.topology();
  if (topology.size == 1) {
    return {make_ring_backend(std::move(make_in_process_transports(1).front())), nullptr, nullptr};
  }
  if (engine == "shm") {
    require_shared_memory(topology);
    return make_host_engine(session);
  }
  auto flat =
      std::make_unique<RingBackend>(make_tcp_transport(session, tcp_streams), topology.host_of);
  const int most = most_on_a_host(topology);
  if (on_one_host(topology) || most == 1 || most > kMostSharing) {
    return {make_planned_ring(session, std::move(flat)), nullptr, nullptr};
  }
  RingBackend* const ring = flat.get();
  return make_hosts(session, engine, std::move(flat), ring);
}

/// Uses MPI where all ranks can, and the native engine otherwise.
HostEngine make_engine(Session& session, const Decisions& decided, const MakeMpiBackend& make_mpi) {
  if (decided.engine != kMpi) {
    return make_native_engine(session, decided.engine, decided.tcp_streams);
  }
  auto mpi = make_mpi(session);
  if (!mpi) return make_native_engine(session, native_engine(session), decided.tcp_streams);
  const Topology& topology = session.topology();
  const int most = most_on_a_host(topology);
  if (on_one_host(topology) || most == 1 || most > kMostSharing) {
    return {std::move(mpi), nullptr, nullptr};
  }
  return make_hosts(session, "mpi+hosts", std::move(mpi), nullptr);
}

/// Returns `of_host`, the fence of the host engine, where that engine serves all ranks, or makes a
/// fence.
std::unique_ptr<ReadyFence> make_fence(Session& session, std::unique_ptr<ReadyFence> of_host) {
  if (session.topology().size == 1) return nullptr;  // there is no other rank to wait for
  if (of_host) return of_host;
  if (native_engine(session) != "shm") return make_tcp_fence(session);
  require_shared_memory(session.topology());
  return make_host_fence(session);
}

}  // namespace

std::unique_ptr<Context> compose_context(const Config& config, std::shared_ptr<Store> store,
                                         const MakeMpiBackend& make_mpi) {
  require_known("HVD_BACKEND", config.backend, {"auto", "native", "mpi", "nccl"});
  require_known("HVD_TRANSPORT", config.transport, {"auto", "shm", "tcp"});
  auto session = std::make_unique<Session>(config, std::move(store));
  const Decisions decided = agree_on_engine(*session);

  HostEngine host = make_engine(*session, decided, make_mpi);
  std::vector<std::unique_ptr<Backend>> backends;
  if (config.backend == "auto" || config.backend == "nccl") {
    backends = make_nccl_backends(*session, *host.backend);
  }
  if (config.backend == "nccl" && (backends.empty() || backends.front()->name() != "nccl")) {
    throw Error(Errc::unsupported,
                "HVD_BACKEND=nccl, but this build has no NCCL, or not every rank has a GPU of its "
                "own");
  }
  backends.push_back(std::move(host.backend));
  for (const auto& backend : backends) {
    log(LogLevel::plan, session->topology().rank,
        fmt::format("backend {} ({})", backend->name(), decided.engine));
  }
  auto fence = make_fence(*session, std::move(host.fence));
  return std::make_unique<Context>(std::move(session), std::move(backends), std::move(fence),
                                   std::move(host.arena));
}

}  // namespace hvd::detail

namespace hvd {

std::unique_ptr<Context> make_context(const Config& config, std::shared_ptr<Store> store) {
  return detail::compose_context(config, std::move(store),
                                 [](Session& session) { return make_mpi_backend(session); });
}

}  // namespace hvd
