#include "mpi/mpi_meeting.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <string.h>

#include <hvd/core/error.hpp>
#include <hvd/core/peer_network.hpp>
#include <hvd/core/store_host.hpp>

#include "mpi/mpi_comm.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_process.hpp"

namespace hvd {
namespace {

constexpr std::size_t kMessage = 1024;  // bytes of every broadcast

/// What is broadcast, and is gone from this memory afterwards. On the heap: when a broadcast is
/// given up, MPI keeps it.
struct Message {
  std::array<std::byte, kMessage> bytes{};
  ~Message() { ::explicit_bzero(bytes.data(), bytes.size()); }
};

struct Invitation {
  std::string trouble;  ///< why rank 0 cannot invite
  std::string address;
  std::string job;
  Secret secret;
};

Bytes encode(const Invitation& invitation) {
  WireWriter out;
  out.text(invitation.trouble.substr(0, 400));
  out.text(invitation.address);
  out.text(invitation.job);
  out.raw(invitation.secret.bytes());
  return out.take();
}

Invitation decode(std::span<const std::byte> bytes) {
  WireReader in(bytes, "invitation");
  Invitation invitation;
  invitation.trouble = in.text(400);
  invitation.address = in.text(256);
  invitation.job = in.text(128);
  std::array<std::byte, Secret::kSize> secret{};
  const auto raw = in.raw(secret.size());
  std::copy(raw.begin(), raw.end(), secret.begin());
  invitation.secret = Secret(secret);
  return invitation;
}

/// The store of a meeting: rank 0's also serves it.
class MeetingStore final : public Store {
 public:
  MeetingStore(std::unique_ptr<StoreHost> host, std::shared_ptr<Store> client)
      : host_(std::move(host)), client_(std::move(client)) {}

  void set(std::string_view key, std::span<const std::byte> value, Deadline deadline) override {
    client_->set(key, value, deadline);
  }
  std::optional<Bytes> get(std::string_view key, Deadline deadline) override {
    return client_->get(key, deadline);
  }
  Bytes wait(std::string_view key, Deadline deadline) override {
    return client_->wait(key, deadline);
  }

 private:
  std::unique_ptr<StoreHost> host_;
  std::shared_ptr<Store> client_;
};

/// The steps that use the communicator.
class Meeting {
 public:
  Meeting(MPI_Comm comm, Deadline deadline) try
      : watch_(deadline, never_, "init", "MPI"), comm_(comm, watch_) {
  } catch (...) {
    MpiUse::mark_failed();
  }

  [[nodiscard]] int rank() const noexcept { return comm_.rank(); }
  [[nodiscard]] int size() const noexcept { return comm_.size(); }

  /// Rank 0's bytes, on all ranks.
  std::unique_ptr<Message> broadcast(Bytes bytes) {
    auto message = std::make_unique<Message>();
    std::copy_n(bytes.begin(), std::min(bytes.size(), kMessage), message->bytes.begin());
    ::explicit_bzero(bytes.data(), bytes.size());
    return finish(std::move(message), [&](std::byte* data, MPI_Request* request) {
      return MPI_Ibcast(data, static_cast<int>(kMessage), MPI_BYTE, 0, comm_.get(), request);
    });
  }

  /// Whether it is true on every rank.
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

bool on_one_host(Meeting& meeting) {
  const HostIdentity own = HostIdentity::of_this_process();
  WireWriter out;
  out.text(own.boot_id);
  out.u64(own.network_namespace);
  const auto first = meeting.broadcast(out.take());
  WireReader in(first->bytes, "host identity");
  HostIdentity other;
  other.boot_id = in.text(256);
  other.network_namespace = in.u64();
  return meeting.all(own.same_host(other));
}

/// Disjoint communicators of one job are jobs of their own.
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

MpiMeeting meet(Meeting& meeting, MpiMeeting found, Deadline deadline) {
  Config& config = found.config;
  const bool one_host = on_one_host(meeting);
  std::unique_ptr<StoreHost> host;
  Invitation invitation;
  if (meeting.rank() == 0) {
    try {
      config.job_id = fresh_job(config.job_id);
      host = std::make_unique<StoreHost>(config, one_host);
      invitation = {{}, host->address(), config.job_id, host->secret()};
    } catch (const Error& error) {
      invitation.trouble = error.what();
    }
  }
  invitation = decode(meeting.broadcast(encode(invitation))->bytes);
  if (!invitation.trouble.empty()) {
    throw Error(Errc::resource, fmt::format("rank 0 cannot serve a store: {}", invitation.trouble));
  }
  config.job_id = invitation.job;
  const Identity identity{config.job_id, config.epoch, config.rank, invitation.secret};
  found.store = std::make_shared<MeetingStore>(
      std::move(host), connect_store(invitation.address, identity, deadline));
  found.secret = invitation.secret.to_inheritable_fd();
  config.secret_fd = found.secret.get();
  return found;
}

}  // namespace

MpiMeeting meet_over_mpi(const Config& config, MPI_Comm comm) {
  MpiUse::require_here();
  require_group(comm);
  const Deadline deadline = Clock::now() + config.start_timeout;
  MpiMeeting found{.config = config, .store = nullptr, .secret = {}};
  found.config.local_rank = found.config.local_size = -1;
  found.config.cross_rank = found.config.cross_size = -1;
  found.config.rendezvous = Rendezvous::none;
  found.config.store_address.clear();
  found.config.secret_fd = -1;
  found.config.secret_file.clear();
  Meeting meeting(comm, deadline);
  found.config.rank = meeting.rank();
  found.config.size = meeting.size();
  return meet(meeting, std::move(found), deadline);
}

}  // namespace hvd
