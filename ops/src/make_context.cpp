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

/// Rank 0's number of TCP streams per neighbour.
int agree_on_streams(Session& session) {
  constexpr std::string_view kKey = "plan/tcp_streams";
  if (session.topology().rank == 0) {
    int streams = session.config().tcp_streams;
    if (streams == 0) streams = on_one_host(session.topology()) ? 1 : kStreamsBetweenHosts;
    const std::string text = std::to_string(streams);
    session.store().set(kKey, std::as_bytes(std::span(text)), session.start_deadline());
    return streams;
  }
  const Bytes text = session.store().wait(kKey, session.start_deadline());
  return std::stoi(std::string(reinterpret_cast<const char*>(text.data()), text.size()));
}

/// Without a foreign engine.
HostEngine make_native_engine(Session& session, const std::string& engine) {
  if (session.topology().size == 1) {
    return {make_ring_backend(std::move(make_in_process_transports(1).front())), nullptr};
  }
  if (engine == "shm") return make_host_engine(session);
  const Topology& topology = session.topology();
  const int streams = agree_on_streams(session);
  auto flat = make_ring_backend(make_tcp_transport(session, streams));
  if (on_one_host(topology) || !shares_hosts(topology)) return {std::move(flat), nullptr};
  // A host may have one rank only: the flat backend does for it.
  HostEngine host;
  if (ranks_here(topology).size() > 1) host = make_host_engine(session);
  host.backend = make_hierarchical_backend(std::move(flat), std::move(host.backend), topology,
                                           session.start_deadline());
  return host;
}

std::unique_ptr<Arrivals> make_arrivals(Session& session, const std::string& engine) {
  if (session.topology().size == 1) return nullptr;  // nobody else has to come
  const std::string native = engine == kMpi ? native_engine(session) : engine;
  return native == "shm" ? make_shm_arrivals(session) : make_tcp_arrivals(session);
}

HostEngine make_engine(Session& session, const std::string& engine,
                       const MakeMpiBackend& make_mpi) {
  if (engine != kMpi) return make_native_engine(session, engine);
  if (auto mpi = make_mpi(session)) return {std::move(mpi), nullptr};
  return make_native_engine(session, native_engine(session));
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

  std::vector<std::unique_ptr<Backend>> backends;
  if (config.backend == "auto" || config.backend == "nccl") {
    if (auto nccl = make_nccl_backend(*session)) {
      backends.push_back(std::move(nccl));
    } else if (config.backend == "nccl") {
      throw Error(Errc::unsupported,
                  "HVD_BACKEND=nccl, but this build has no NCCL or this machine no GPU");
    }
  }
  HostEngine host = make_engine(*session, engine, make_mpi);
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
