// Composes a context: which transport and which backends, decided once by rank 0.
#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/hvd.hpp>
#include <hvd/ops/backends.hpp>

namespace hvd {
namespace {

void require_known(std::string_view variable, const std::string& value,
                   std::initializer_list<std::string_view> known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  throw Error(Errc::invalid_argument,
              fmt::format("{}={}: expected one of {}", variable, value, fmt::join(known, ", ")));
}

/// What every rank uses for host memory: "shm", "tcp" or "mpi".
std::string choose_engine(const Config& config, const Topology& topology) {
  if (config.backend == "mpi") return "mpi";
  if (config.transport != "auto") return config.transport;
  const bool one_host = std::all_of(topology.host_of.begin(), topology.host_of.end(),
                                    [](int host) { return host == 0; });
  return one_host ? "shm" : "tcp";
}

/// Rank 0 decides and the others follow, so that settings that differ between ranks are an error
/// here and not a hang later.
std::string agree_on_engine(Session& session) {
  const Config& config = session.config();
  const std::string own = choose_engine(config, session.topology());
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

std::unique_ptr<Transport> make_transport(Session& session, const std::string& engine) {
  if (session.topology().size == 1) return std::move(make_in_process_transports(1).front());
  return engine == "shm" ? make_shm_transport(session) : make_tcp_transport(session);
}

std::unique_ptr<Backend> make_host_backend(Session& session, const std::string& engine) {
  if (engine != "mpi") return make_ring_backend(make_transport(session, engine));
  if (auto mpi = make_mpi_backend(session)) return mpi;
  throw Error(Errc::unsupported, "HVD_BACKEND=mpi, but this build has no MPI");
}

}  // namespace

std::unique_ptr<Context> make_context(const Config& config, std::shared_ptr<Store> store) {
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
  backends.push_back(make_host_backend(*session, engine));
  for (const auto& backend : backends) {
    log(LogLevel::plan, session->topology().rank,
        fmt::format("backend {} ({})", backend->name(), engine));
  }
  return std::make_unique<Context>(std::move(session), std::move(backends));
}

}  // namespace hvd
