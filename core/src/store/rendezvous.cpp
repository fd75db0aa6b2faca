#include "store/rendezvous.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/bootstrap.hpp>
#include <hvd/core/internal/text.hpp>
#include <hvd/core/internal/wire.hpp>
#include <hvd/core/log.hpp>

#include "net/blocking_io.hpp"
#include "net/crypto.hpp"
#include "net/interfaces.hpp"
#include "net/socket.hpp"

namespace hvd::detail {
namespace {

constexpr std::chrono::milliseconds kFirstPause{10};
constexpr std::chrono::milliseconds kLongestPause{200};
constexpr std::chrono::milliseconds kPerPort{2'000};

bool one_host(const Config& config) { return config.local_size == config.size; }

/// Holds rank 0's announcement: the address of its store, and the job's secret or zeros.
struct Announcement {
  std::string address;
  Secret secret;

  [[nodiscard]] Bytes encode() const {
    WireWriter out;
    out.text(address);
    out.raw(secret.bytes());
    return out.take();
  }
  [[nodiscard]] static Announcement decode(std::span<const std::byte> bytes) {
    WireReader in(bytes, "announcement of a store");
    Announcement announcement;
    announcement.address = in.text(512);
    announcement.secret = Secret(in.raw(Secret::kSize).first<Secret::kSize>());
    in.finish();
    return announcement;
  }
};

[[noreturn]] void refuse_without_secret(const Config& config) {
  throw Error(
      Errc::unauthenticated,
      fmt::format("the {} ranks that {} tells of run on several hosts and share no secret: put 32 "
                  "random bytes into a file of mode 0600 and name it in HVD_SECRET_FILE on every "
                  "rank, or set HVD_INSECURE=1 where everybody in the network may be trusted",
                  config.size, config.rank_source));
}

std::string short_digest(std::string_view purpose, std::span<const std::byte> bytes) {
  const net::Mac digest = net::hmac_sha256(bytes_of(purpose), bytes);
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + 16, ""));
}

/// Returns a name that is the same on all ranks of one job and epoch, and differs between the jobs
/// of a user.
std::string rendezvous_name(const Config& config) {
  WireWriter identity;
  identity.text(config.job_id);
  identity.u32(config.epoch);
  identity.text(job_in_launch(config));
  identity.u32(static_cast<std::uint32_t>(::geteuid()));
  return "hvd-job-" + short_digest("hvd meeting", identity.take());
}

// Everybody can compute this key, so the handshake only keeps out clients that connect by mistake.
Secret open_secret(const Config& config) {
  return Secret(net::hmac_sha256(bytes_of("HVD_INSECURE"), bytes_of(rendezvous_name(config))));
}

/// Returns the address at which rank 0 listens so that the others find it at `where`.
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
      ++address.port;  // another program uses this port
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

/// Connects to the store that rank 0 serves at one of the ports. The handshake tells it from other
/// servers and from the store of an earlier job.
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

/// Makes the secret of the peers in a job whose store is open to everybody.
Secret share_secret_openly(const Config& config, Store& store, Deadline deadline) {
  const Bootstrap bootstrap(store, config.rank, config.size, deadline, job_in_launch(config));
  const std::string value = bootstrap.share("open/secret", [&] {
    log(LogLevel::error, config.rank,
        "HVD_INSECURE=1: whoever reaches this job over the network can join it, read its data and "
        "change it");
    const Secret secret = Secret::random();
    return std::string(text_of(secret.bytes()));
  });
  if (value.size() != Secret::kSize) throw Error(Errc::protocol, "malformed secret in the store");
  return Secret(bytes_of(value).first<Secret::kSize>());
}

/// Tells whether a Unix socket, which needs no secret, may suffice: as far as this rank knows, all
/// ranks are on rank 0's host.
bool can_use_unix_socket(const Config& config, const Address& where) {
  const bool unknown = config.local_size < 0;
  return one_host(config) || (unknown && net::is_this_machine(where.host));
}

}  // namespace

std::string job_in_launch(const Config& config) {
  const std::string generation = std::to_string(config.generation);
  if (config.ranks.empty()) return generation;
  const std::string ranks = fmt::format("{}", fmt::join(config.ranks, ","));
  return generation + "-" + short_digest("hvd ranks", bytes_of(ranks));
}

ConnectedStore connect_hosted_store(EventLoop& loop, const Config& config, const Secret& secret,
                                    Deadline deadline) {
  const std::string name = rendezvous_name(config);
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
  ConnectedStore result;
  if (config.rank == 0) result.server = serve(loop, config, where, identity);
  if (result.server && !here) {
    where = Address::parse(result.server->address());
    if (where.host == "0.0.0.0") where.host = "127.0.0.1";
    result.store = connect_store(where.to_string(), identity, deadline);
  } else {
    result.store = look_for(config, where, identity, deadline);
  }
  result.secret = open && !here ? share_secret_openly(config, *result.store, deadline) : secret;
  return result;
}

ConnectedStore connect_announced_store(EventLoop& loop, const Config& config, Store& launcher_store,
                                       std::string_view label, const Secret& secret,
                                       Deadline deadline) {
  ConnectedStore result;
  const auto identity = [&](const Secret& shared) {
    return Identity{config.job_id, config.epoch, config.rank, shared};
  };
  const Bootstrap bootstrap(launcher_store, config.rank, config.size, deadline,
                            job_in_launch(config));
  const std::string answer = bootstrap.share(label, [&] {
    const Secret fresh = secret.empty() ? Secret::random() : Secret();
    // If all ranks are on one host, the store uses a Unix socket, which other hosts cannot reach.
    result.server = std::make_unique<StoreServer>(
        loop, one_host(config) ? "unix:@" : net::listen_address(config.interfaces, false),
        identity(secret.empty() ? fresh : secret));
    return std::string(text_of(Announcement{result.server->address(), fresh}.encode()));
  });
  const Announcement announcement = Announcement::decode(bytes_of(answer));
  result.secret = announcement.secret.empty() ? secret : announcement.secret;
  result.store = connect_store(announcement.address, identity(result.secret), deadline);
  return result;
}

}  // namespace hvd::detail
