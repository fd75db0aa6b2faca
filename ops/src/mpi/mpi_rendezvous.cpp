// Makes contexts of the ranks of a communicator, which find each other over the communicator: rank
// 0 serves a store, and its address and a random secret are broadcast.

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <string.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/host_identity.hpp>
#include <hvd/core/internal/peer_network.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/core/internal/store_server.hpp>
#include <hvd/core/internal/wire.hpp>
#include <hvd/core/store.hpp>
#include <hvd/mpi.hpp>

#include "context/make_context.hpp"
#include "mpi/make_mpi.hpp"
#include "mpi/mpi_comm.hpp"
#include "mpi/mpi_process.hpp"

namespace hvd {

using namespace detail;

namespace {

struct Found {
  Config config;                 ///< with the communicator's rank and size, and a job of its own
  std::shared_ptr<Store> store;  ///< served by rank 0
  UniqueFd secret;               ///< the descriptor in `config.secret_fd`
};

constexpr std::size_t kMessage = 1024;  // bytes of every broadcast

/// Holds a message that is broadcast, and wiped afterwards. It is on the heap, because MPI keeps it
/// when a broadcast is given up.
struct Message {
  std::array<std::byte, kMessage> bytes{};
  ~Message() { ::explicit_bzero(bytes.data(), bytes.size()); }
};

struct Announcement {
  std::string trouble;  ///< why rank 0 cannot serve a store
  std::string address;
  std::string job;
  Secret secret;
};

Bytes encode(const Announcement& announcement) {
  WireWriter out;
  out.text(announcement.trouble.substr(0, 400));
  out.text(announcement.address);
  out.text(announcement.job);
  out.raw(announcement.secret.bytes());
  return out.take();
}

Announcement decode(std::span<const std::byte> bytes) {
  WireReader in(bytes, "announcement of a store");
  Announcement announcement;
  announcement.trouble = in.text(400);
  announcement.address = in.text(256);
  announcement.job = in.text(128);
  announcement.secret = Secret(in.raw(Secret::kSize).first<Secret::kSize>());
  return announcement;
}

/// Holds a client of the store, and on rank 0 its server, which ends after the client.
struct HostedStore {
  std::unique_ptr<StoreHost> host;
  std::shared_ptr<Store> client;
};

/// Runs the collective steps over the communicator.
class MpiRendezvous {
 public:
  MpiRendezvous(MPI_Comm comm, Deadline deadline) try
      : watch_(deadline, never_, "init", "MPI"), comm_(comm, watch_) {
  } catch (...) {
    MpiUse::mark_failed();
  }

  [[nodiscard]] int rank() const noexcept { return comm_.rank(); }
  [[nodiscard]] int size() const noexcept { return comm_.size(); }

  /// Returns rank 0's bytes on all ranks.
  std::unique_ptr<Message> broadcast(Bytes bytes) {
    auto message = std::make_unique<Message>();
    std::copy_n(bytes.begin(), std::min(bytes.size(), kMessage), message->bytes.begin());
    ::explicit_bzero(bytes.data(), bytes.size());
    return finish(std::move(message), [&](std::byte* data, MPI_Request* request) {
      return MPI_Ibcast(data, static_cast<int>(kMessage), MPI_BYTE, 0, comm_.get(), request);
    });
  }

  /// Returns whether `own` is true on every rank.
  bool all(bool own) {
    auto message = std::make_unique<Message>();
    message->bytes[0] = std::byte{own};
    message = finish(std::move(message), [&](std::byte* data, MPI_Request* request) {
      return MPI_Iallreduce(MPI_IN_PLACE, data, 1, MPI_UNSIGNED_CHAR, MPI_MIN, comm_.get(),
                            request);
    });
    return message->bytes[0] != std::byte{0};
  }

 private:
  template <class Start>
  std::unique_ptr<Message> finish(std::unique_ptr<Message> message, Start start) {
    MPI_Request request = MPI_REQUEST_NULL;
    try {
      check_mpi(start(message->bytes.data(), &request), "a collective of MPI", watch_);
      complete(request, "a collective of MPI", watch_);
    } catch (...) {
      MpiUse::mark_failed();
      static_cast<void>(message.release());
      throw;
    }
    return message;
  }

  const std::atomic<bool> never_{false};
  Watch watch_;
  MpiComm comm_;
};

bool on_one_host(MpiRendezvous& ranks) {
  const HostIdentity own = HostIdentity::of_this_process();
  WireWriter out;
  out.text(own.boot_id);
  out.u64(own.network_namespace);
  const auto first = ranks.broadcast(out.take());
  WireReader in(first->bytes, "host identity");
  HostIdentity other;
  other.boot_id = in.text(256);
  other.network_namespace = in.u64();
  return ranks.all(own.same_host(other));
}

/// Returns a new job id, since disjoint communicators of one job are jobs of their own.
std::string fresh_job(const std::string& given) {
  const Secret random = Secret::random();
  std::string name = given.substr(0, 64) + ".";
  for (std::size_t i = 0; i < 8; ++i) {
    name += fmt::format("{:02x}", static_cast<unsigned>(random.bytes()[i]));
  }
  return name;
}

void require_group(MPI_Comm comm) {
  int between_groups = 0;
  if (comm != MPI_COMM_NULL) MPI_Comm_test_inter(comm, &between_groups);
  if (comm == MPI_COMM_NULL || between_groups != 0) {
    throw Error(Errc::invalid_argument, "hvd needs an intracommunicator that this rank is in");
  }
}

Found find_store(MpiRendezvous& ranks, Found found, Deadline deadline) {
  Config& config = found.config;
  const bool one_host = on_one_host(ranks);
  std::unique_ptr<StoreHost> host;
  Announcement announcement;
  if (ranks.rank() == 0) {
    try {
      config.job_id = fresh_job(config.job_id);
      host = std::make_unique<StoreHost>(config, one_host);
      announcement = {{}, host->address(), config.job_id, host->secret()};
    } catch (const Error& error) {
      announcement.trouble = error.what();
    }
  }
  announcement = decode(ranks.broadcast(encode(announcement))->bytes);
  if (!announcement.trouble.empty()) {
    throw Error(Errc::resource,
                fmt::format("rank 0 cannot serve a store: {}", announcement.trouble));
  }
  config.job_id = announcement.job;
  const Identity identity{config.job_id, config.epoch, config.rank, announcement.secret};
  auto hosted = std::make_shared<HostedStore>();
  hosted->host = std::move(host);
  hosted->client = connect_store(announcement.address, identity, deadline);
  found.store = std::shared_ptr<Store>(hosted, hosted->client.get());
  found.secret = announcement.secret.to_inheritable_fd();
  config.secret_fd = found.secret.get();
  return found;
}

/// Collective over `comm`, on the thread that may call MPI. Throws Errc::invalid_argument for an
/// intercommunicator or none, Errc::unsupported when MPI cannot be called here, and rank 0's error
/// when it cannot listen.
Found rendezvous_over_mpi(const Config& config, MPI_Comm comm) {
  MpiUse::require_here();
  require_group(comm);
  const Deadline deadline = Clock::now() + config.start_timeout;
  Found found{.config = config, .store = nullptr, .secret = {}};
  found.config.local_rank = found.config.local_size = -1;
  found.config.cross_rank = found.config.cross_size = -1;
  found.config.rendezvous = Rendezvous::none;
  found.config.store_address.clear();
  found.config.secret_fd = -1;
  found.config.secret_file.clear();
  MpiRendezvous ranks(comm, deadline);
  found.config.ranks.clear();
  found.config.rank = ranks.rank();
  found.config.size = ranks.size();
  return find_store(ranks, std::move(found), deadline);
}

}  // namespace

std::unique_ptr<Context> make_context(const Config& config, MPI_Comm comm) {
  Found found = rendezvous_over_mpi(config, comm);
  return compose_context(found.config, std::move(found.store),
                         [comm](Session& session) { return make_mpi_backend(session, comm); });
}

void init(MPI_Comm comm, const Config& config) {
  init_default_context(config,
                       [comm](const Config& settings) { return make_context(settings, comm); });
}

}  // namespace hvd
