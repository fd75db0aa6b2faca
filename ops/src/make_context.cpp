// Composes a context: which transport and which backends, decided once by rank 0.
#include "make_context.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/hvd.hpp>
#include <hvd/ops/arrivals.hpp>
#include <hvd/ops/backends.hpp>

#include "cost/agree_on_plan.hpp"
#include "hierarchy/hierarchical_backend.hpp"
#include "hierarchy/host_plan.hpp"
#include "ring/ring_backend.hpp"
#include "transport/host_meeting.hpp"

namespace hvd {
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

/// Some host has several ranks.
bool shares_hosts(const Topology& topology) {
  const auto most = *std::max_element(topology.host_of.begin(), topology.host_of.end());
  return most + 1 < topology.size;
}

std::string native_engine(const Session& session) {
  if (session.config().transport != "auto") return session.config().transport;
  return on_one_host(session.topology()) ? "shm" : "tcp";
}

/// What this rank would use for host memory: "shm", "tcp" or "mpi".
std::string choose_engine(const Session& session) {
  return session.config().backend == kMpi ? std::string(kMpi) : native_engine(session);
}

/// Rank 0 decides and the others follow, so that settings that differ between ranks are an error
/// here and not a hang later.
std::string agree_on_engine(Session& session) {
  const std::string own = choose_engine(session);
  constexpr std::string_view kKey = "plan/engine";
  if (session.topology().rank == 0) {
    session.store().set(kKey, std::as_bytes(std::span(own)), session.start_deadline());
    return own;
  }
  const Bytes chosen = session.store().wait(kKey, session.start_deadline());
  std::string engine(reinterpret_cast<const char*>(chosen.data()), chosen.size());
  if (engine != own) {
    throw Error(Errc::mismatch,
                fmt::format("rank 0 uses '{}' and rank {} '{}': HVD_BACKEND or HVD_TRANSPORT "
                            "differ between them",
                            engine, session.topology().rank, own));
  }
  return engine;
}

// Between hosts several streams share a link better than one, and get their share beside others.
constexpr int kStreamsBetweenHosts = 4;
// Within one, what the one has on its way can be read while the other is filled.
constexpr int kStreamsWithinHost = 2;

/// Rank 0's number of TCP streams per neighbour.
int agree_on_streams(Session& session) {
  constexpr std::string_view kKey = "plan/tcp_streams";
  if (session.topology().rank == 0) {
    int streams = session.config().tcp_streams;
    if (streams == 0) {
      streams = on_one_host(session.topology()) ? kStreamsWithinHost : kStreamsBetweenHosts;
    }
    const std::string text = std::to_string(streams);
    session.store().set(kKey, std::as_bytes(std::span(text)), session.start_deadline());
    return streams;
  }
  const Bytes text = session.store().wait(kKey, session.start_deadline());
  return std::stoi(std::string(reinterpret_cast<const char*>(text.data()), text.size()));
}

/// A ring over all ranks, of which no host has several.
std::unique_ptr<Backend> make_planned_ring(Session& session, std::unique_ptr<RingBackend> ring) {
  const Plan defaults = Plan().set(Plan::kRing, RingBackend::default_ways());
  const Plan plan = agree_on_plan(
      session, {.engine = ring->transport_name(), .defaults = defaults, .measure = [&] {
                  return measure_ring(session, *ring);
                }});
  ring->use(plan.of(Plan::kRing, RingBackend::default_ways()));
  return ring;
}

/// Between hosts by `flat`, within them over shared memory. `ring` is what of `flat` has a plan of
/// its own, or null.
HostEngine make_hosts(Session& session, std::string_view engine, std::unique_ptr<Backend> flat,
                      RingBackend* ring) {
  const Topology& topology = session.topology();
  HostEngine host;  // a rank that is alone on its host needs none
  if (ranks_here(topology).size() > 1) host = make_host_engine(session);
  auto hosts = compose_hierarchy(std::move(flat), std::move(host.backend), topology,
                                 session.start_deadline());
  Plan defaults = Plan().set(Plan::kHosts, HierarchicalBackend::default_ways());
  if (ring) defaults.set(Plan::kRing, RingBackend::default_ways());
  const Plan plan = agree_on_plan(session, {.engine = engine, .defaults = defaults, .measure = [&] {
                                              return measure_hosts(session, *hosts);
                                            }});
  hosts->use(plan.of(Plan::kHosts, HierarchicalBackend::default_ways()));
  if (ring) ring->use(plan.of(Plan::kRing, RingBackend::default_ways()));
  host.backend = std::move(hosts);
  return host;
}

/// Without a foreign engine.
HostEngine make_native_engine(Session& session, const std::string& engine) {
  const Topology& topology = session.topology();
  if (topology.size == 1) {
    return {make_ring_backend(std::move(make_in_process_transports(1).front())), nullptr};
  }
  if (engine == "shm") return make_host_engine(session);
  auto flat = std::make_unique<RingBackend>(make_tcp_transport(session, agree_on_streams(session)),
                                            topology.host_of);
  if (on_one_host(topology) || !shares_hosts(topology)) {
    return {make_planned_ring(session, std::move(flat)), nullptr};
  }
  RingBackend* const ring = flat.get();
  return make_hosts(session, engine, std::move(flat), ring);
}

/// MPI where all ranks can use it, else the native engine.
HostEngine make_engine(Session& session, const std::string& engine,
                       const MakeMpiBackend& make_mpi) {
  if (engine != kMpi) return make_native_engine(session, engine);
  auto mpi = make_mpi(session);
  if (!mpi) return make_native_engine(session, native_engine(session));
  const Topology& topology = session.topology();
  if (on_one_host(topology) || !shares_hosts(topology)) return {std::move(mpi), nullptr};
  return make_hosts(session, "mpi+hosts", std::move(mpi), nullptr);
}

std::unique_ptr<Arrivals> make_arrivals(Session& session, const std::string& engine) {
  if (session.topology().size == 1) return nullptr;  // nobody else has to come
  const std::string native = engine == kMpi ? native_engine(session) : engine;
  return native == "shm" ? make_shm_arrivals(session) : make_tcp_arrivals(session);
}

}  // namespace

std::unique_ptr<Context> make_context(const Config& config, std::shared_ptr<Store> store) {
  return compose_context(config, std::move(store),
                         [](Session& session) { return make_mpi_backend(session); });
}

std::unique_ptr<Context> compose_context(const Config& config, std::shared_ptr<Store> store,
                                         const MakeMpiBackend& make_mpi) {
  require_known("HVD_BACKEND", config.backend, {"auto", "native", "mpi", "nccl"});
  require_known("HVD_TRANSPORT", config.transport, {"auto", "shm", "tcp"});
  auto session = std::make_unique<Session>(config, std::move(store));
  const std::string engine = agree_on_engine(*session);

  HostEngine host = make_engine(*session, engine, make_mpi);
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
        fmt::format("backend {} ({})", backend->name(), engine));
  }
  auto arrivals = make_arrivals(*session, engine);
  return std::make_unique<Context>(std::move(session), std::move(backends), std::move(arrivals),
                                   std::move(host.arena));
}

}  // namespace hvd
