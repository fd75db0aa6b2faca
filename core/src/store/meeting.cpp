#include "store/meeting.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <hvd/core/address.hpp>
#include <hvd/core/error.hpp>
#include <hvd/core/log.hpp>

#include "net/blocking_io.hpp"
#include "net/crypto.hpp"
#include "net/interfaces.hpp"
#include "net/own_address.hpp"
#include "net/socket.hpp"

namespace hvd {
namespace {

constexpr std::chrono::milliseconds kFirstPause{10};
constexpr std::chrono::milliseconds kLongestPause{200};
constexpr std::chrono::milliseconds kPerPort{2'000};

bool one_host(const Config& config) { return config.local_size == config.size; }

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// What rank 0 tells the others: where its store listens and the job's secret.
struct Invitation {
  std::string address;
  Secret secret;

  [[nodiscard]] Bytes encode() const {
    WireWriter out;
    out.text(address);
    out.raw(secret.bytes());
    return out.take();
  }
  [[nodiscard]] static Invitation decode(std::span<const std::byte> bytes) {
    WireReader in(bytes, "invitation");
    Invitation invitation;
    invitation.address = in.text(512);
    std::array<std::byte, Secret::kSize> secret;
    const auto raw = in.raw(secret.size());
    std::copy(raw.begin(), raw.end(), secret.begin());
    invitation.secret = Secret(secret);
    in.finish();
    return invitation;
  }
};

[[noreturn]] void refuse_without_secret(const Config& config) {
  throw Error(
      Errc::unauthenticated,
      fmt::format("the {} ranks that {} tells of run on several hosts and share no secret: put 32 "
                  "random bytes into a file of mode 0600 and name it in HVD_SECRET_FILE on every "
                  "rank, or set HVD_INSECURE=1 where everybody in the network may be trusted",
                  config.size, config.place_from));
}

// A key that everybody can compute: the handshake then only sorts out strangers that came by
// mistake.
Secret open_secret(const Config& config) {
  return Secret(net::hmac_sha256(bytes_of("HVD_INSECURE"), bytes_of(meeting_name(config))));
}

/// Where rank 0 listens, so that the others find it at `where`.
Address binding(const Config& config, const Address& where) {
  if (where.kind == Address::Kind::unix_socket) return where;
  Address bound = where;
  if (!config.interfaces.empty()) {
    bound.host = net::choose_address(net::list_interfaces(), config.interfaces, false);
  } else if (const auto own = net::own_address_of(where.host)) {
    bound.host = *own;
  } else {
    bound.host = "0.0.0.0";
    log(LogLevel::info, config.rank,
        fmt::format("'{}' is no address of this machine's network: the store listens on all of "
                    "them; HVD_NETWORK_INTERFACES picks one",
                    where.host));
  }
  return bound;
}

std::unique_ptr<StoreServer> serve(EventLoop& loop, const Config& config, const Address& where,
                                   const Identity& identity) {
  Address address = binding(config, where);
  for (int left = config.store_ports; left > 1 && address.port < 65'535; --left) {
    try {
      return std::make_unique<StoreServer>(loop, address.to_string(), identity);
    } catch (const Error& error) {
      if (error.code() != Errc::resource) throw;
      ++address.port;  // somebody else's
    }
  }
  return std::make_unique<StoreServer>(loop, address.to_string(), identity);
}

bool somebody_listens(const Address& where, Deadline deadline, const net::Interrupt& never) {
  try {
    return static_cast<bool>(net::connect_to(where, deadline, never));
  } catch (const net::Unreachable&) {
    return false;
  }
}

/// The store that rank 0 serves at one of the ports. Strangers on the others, and the store of the
/// meeting before this one, are noticed in the handshake.
std::shared_ptr<Store> look_for(const Config& config, Address where, const Identity& identity,
                                Deadline deadline) {
  if (where.kind == Address::Kind::unix_socket) {
    return connect_store(where.to_string(), identity, deadline);
  }
  const std::uint16_t first = where.port;
  const int ports = std::min(config.store_ports, 65'536 - first);
  const net::Interrupt never;
  for (auto pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    for (int i = 0; i < ports; ++i) {
      where.port = static_cast<std::uint16_t>(first + i);
      const bool last_chance = ports == 1 || Clock::now() >= deadline;
      const Deadline until = last_chance ? deadline : std::min(deadline, Clock::now() + kPerPort);
      if (!last_chance && !somebody_listens(where, until, never)) continue;
      try {
        return connect_store(where.to_string(), identity, until);
      } catch (const Error& error) {
        const bool another = error.code() == Errc::protocol || error.code() == Errc::timeout;
        if (!another || Clock::now() >= deadline) throw;
      }
    }
    net::pause_until(std::min(deadline, Clock::now() + pause), never);
  }
}

/// The peers' secret of a job whose store is open to everybody.
Secret share_openly(const Config& config, Store& store, Deadline deadline) {
  constexpr std::string_view kKey = "open/secret";
  if (config.rank == 0) {
    log(LogLevel::error, config.rank,
        "HVD_INSECURE=1: whoever reaches this job over the network can join it, read its data and "
        "change it");
    const Secret secret = Secret::random();
    store.set(kKey, secret.bytes(), deadline);
    return secret;
  }
  const Bytes value = store.wait(kKey, deadline);
  std::array<std::byte, Secret::kSize> bytes{};
  if (value.size() != bytes.size()) throw Error(Errc::protocol, "malformed secret in the store");
  std::copy(value.begin(), value.end(), bytes.begin());
  return Secret(bytes);
}

/// The one that needs no secret, where all ranks are on rank 0's host for all that is known.
bool can_use_unix_socket(const Config& config, const Address& where) {
  const bool unknown = config.local_size < 0;
  return one_host(config) || (unknown && net::is_this_machine(where.host));
}

}  // namespace

std::string meeting_name(const Config& config) {
  WireWriter identity;
  identity.text(config.job_id);
  identity.u32(config.epoch);
  identity.u32(config.generation);
  identity.u32(static_cast<std::uint32_t>(::geteuid()));
  const net::Mac digest = net::hmac_sha256(bytes_of("hvd meeting"), identity.take());
  return fmt::format("hvd-job-{:02x}", fmt::join(digest.begin(), digest.begin() + 16, ""));
}

Meeting meet_at_rank_0(EventLoop& loop, const Config& config, const Secret& secret,
                       Deadline deadline) {
  const std::string name = meeting_name(config);
  Address where = Address::parse(config.store_address);
  const bool open = secret.empty() && config.insecure;
  if (where.kind == Address::Kind::tcp && secret.empty() && !open) {
    if (!can_use_unix_socket(config, where)) refuse_without_secret(config);
    where = {Address::Kind::unix_socket, "@", 0};
  }
  const bool here = where.kind == Address::Kind::unix_socket;
  if (here && where.host == "@") where.host = fmt::format("@{}", name);
  const Identity identity{name, config.epoch, config.rank,
                          open && !here ? open_secret(config) : secret};
  Meeting meeting;
  if (config.rank == 0) meeting.server = serve(loop, config, where, identity);
  if (meeting.server && !here) {
    where = Address::parse(meeting.server->address());
    if (where.host == "0.0.0.0") where.host = "127.0.0.1";
    meeting.store = connect_store(where.to_string(), identity, deadline);
  } else {
    meeting.store = look_for(config, where, identity, deadline);
  }
  meeting.secret = open && !here ? share_openly(config, *meeting.store, deadline) : secret;
  return meeting;
}

Meeting meet_over_board(EventLoop& loop, const Config& config, Store& board, std::string_view key,
                        const Secret& secret, Deadline deadline) {
  Meeting meeting;
  const auto identity = [&](const Secret& shared) {
    return Identity{config.job_id, config.epoch, config.rank, shared};
  };
  if (config.rank == 0) {
    const Secret fresh = secret.empty() ? Secret::random() : Secret();
    // One host: a Unix socket that only this host can reach.
    meeting.server = std::make_unique<StoreServer>(
        loop, one_host(config) ? "unix:@" : net::listen_address(config.interfaces, false),
        identity(secret.empty() ? fresh : secret));
    board.set(key, Invitation{meeting.server->address(), fresh}.encode(), deadline);
  }
  const Invitation invitation = Invitation::decode(board.wait(key, deadline));
  meeting.secret = invitation.secret.empty() ? secret : invitation.secret;
  meeting.store = connect_store(invitation.address, identity(meeting.secret), deadline);
  return meeting;
}

}  // namespace hvd
