// Composes a context: which transport and which backends, decided once by rank 0.
#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/hvd.hpp>
#include <hvd/ops/arrivals.hpp>
#include <hvd/ops/backends.hpp>

namespace hvd {
namespace {

void require_known(std::string_view variable, const std::string& value,
                   std::initializer_list<std::string_view> known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  throw Error(Errc::invalid_argument,
              fmt::format("{}={}: expected one of {}", variable, value, fmt::join(known, ", ")));
}

constexpr std::string_view kMpi = "mpi";

std::string native_engine(const Session& session) {
  if (session.config().transport != "auto") return session.config().transport;
  const std::vector<int>& hosts = session.topology().host_of;
  const bool one_host = std::all_of(hosts.begin(), hosts.end(), [](int host) { return host == 0; });
  return one_host ? "shm" : "tcp";
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

std::unique_ptr<Transport> make_transport(Session& session, const std::string& engine) {
  if (session.topology().size == 1) return std::move(make_in_process_transports(1).front());
  return engine == "shm" ? make_shm_transport(session) : make_tcp_transport(session);
}

std::unique_ptr<Arrivals> make_arrivals(Session& session, const std::string& engine) {
  if (session.topology().size == 1) return nullptr;  // nobody else has to come
  const std::string native = engine == kMpi ? native_engine(session) : engine;
  return native == "shm" ? make_shm_arrivals(session) : make_tcp_arrivals(session);
}

/// Null when some rank cannot use MPI; every rank then says no.
std::unique_ptr<Backend> try_mpi_backend(Session& session) {
  std::string trouble;
  std::unique_ptr<Backend> mpi;
  try {
    mpi = make_mpi_backend(session);
    if (!mpi) trouble = "this build has no MPI";
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
    trouble = error.what();
  }
  const auto key = [](int rank) { return fmt::format("plan/mpi/{}", rank); };
  const Topology& topology = session.topology();
  session.store().set(key(topology.rank), std::as_bytes(std::span(trouble)),
                      session.start_deadline());
  for (int rank = 0; rank < topology.size; ++rank) {
    const Bytes other = session.store().wait(key(rank), session.start_deadline());
    if (other.empty()) continue;
    if (topology.rank == 0) {
      log(LogLevel::warn, 0,
          fmt::format("HVD_BACKEND=mpi, but rank {} cannot use MPI: {}; using the native transport",
                      rank,
                      std::string_view(reinterpret_cast<const char*>(other.data()), other.size())));
    }
    return nullptr;
  }
  return mpi;
}

std::unique_ptr<Backend> make_host_backend(Session& session, const std::string& engine) {
  if (engine == kMpi) {
    if (auto mpi = try_mpi_backend(session)) return mpi;
    return make_ring_backend(make_transport(session, native_engine(session)));
  }
  return make_ring_backend(make_transport(session, engine));
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
  auto arrivals = make_arrivals(*session, engine);
  return std::make_unique<Context>(std::move(session), std::move(backends), std::move(arrivals));
}

}  // namespace hvd
