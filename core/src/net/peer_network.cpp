#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/host_identity.hpp>
#include <hvd/core/internal/peer_network.hpp>
#include <hvd/core/internal/text.hpp>
#include <hvd/core/log.hpp>

#include "net/acceptor.hpp"
#include "net/dial.hpp"
#include "net/interfaces.hpp"
#include "net/peer_table.hpp"

namespace hvd {
namespace {

using net::PeerRecord;
using net::PeerTable;

/// Holds accepted streams that no caller of `PeerNetwork::open` has taken yet, by peer and label.
/// Any thread may call it.
class PendingStreams {
 public:
  /// Replaces and closes an earlier stream of that peer and label, which the peer has given up.
  void add(int peer, const std::string& label, UniqueFd stream);
  /// Returns an empty descriptor when `deadline` comes first. Throws Errc::aborted, and
  /// Errc::resource when `fail` is called meanwhile.
  [[nodiscard]] UniqueFd take(int peer, const std::string& label, Deadline deadline);
  /// Makes the calls of `take` that wait now throw Errc::resource.
  void fail(const std::string& why);
  /// Closes all streams and makes every `take` throw.
  void abort() noexcept;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, std::string>, UniqueFd> streams_;
  bool aborted_ = false;
  int failures_ = 0;
  std::string failure_;  ///< the last one
};

void PendingStreams::add(int peer, const std::string& label, UniqueFd stream) {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  streams_.insert_or_assign({peer, label}, std::move(stream));
  changed_.notify_all();
}

UniqueFd PendingStreams::take(int peer, const std::string& label, Deadline deadline) {
  const std::pair key{peer, label};
  std::unique_lock lock(mutex_);
  const int failures = failures_;
  changed_.wait_until(lock, deadline, [&] {
    return aborted_ || failures_ != failures || streams_.find(key) != streams_.end();
  });
  if (aborted_) throw Error(Errc::aborted, "aborted while connecting");
  const auto found = streams_.find(key);
  if (found == streams_.end() && failures_ != failures) throw Error(Errc::resource, failure_);
  if (found == streams_.end()) return {};
  UniqueFd stream = std::move(found->second);
  streams_.erase(found);
  return stream;
}

void PendingStreams::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  ++failures_;
  failure_ = why;
  changed_.notify_all();
}

void PendingStreams::abort() noexcept {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  streams_.clear();
  changed_.notify_all();
}

// Ranks publish their addresses when they listen, so a refusal means that the rank has ended.
constexpr std::chrono::milliseconds kRefusalPatience{1'000};

[[noreturn]] void fail_without_secret() {
  throw Error(Errc::unauthenticated,
              "the ranks run on several hosts and share no secret; put 32 random bytes into a "
              "file of mode 0600 and name it in HVD_SECRET_FILE on every rank");
}

// Only rank 0 calls it. Ranks of one host need no secret to reach each other by Unix sockets, but
// the TCP ports beside them are open to every user. Those ports get a secret made for this job,
// which is passed through the store, to which only this user has access.
PeerTable make_table(const std::vector<std::string>& records, bool has_secret) {
  PeerTable table;
  for (const std::string& record : records) {
    try {
      table.ranks.push_back(net::decode_peer_record(detail::bytes_of(record)));
    } catch (const Error& error) {
      throw Error(Errc::protocol, fmt::format("rank {}: {}", table.ranks.size(), error.what()));
    }
  }
  if (has_secret) return table;
  if (!table.on_one_host()) fail_without_secret();
  table.secret = Secret::random();
  return table;
}

}  // namespace

struct PeerNetwork::Impl {
  Impl(EventLoop& event_loop, const Identity& self, int ranks)
      : loop(event_loop), identity(self), size(ranks) {}

  EventLoop& loop;
  Identity identity;
  int size;
  std::vector<PeerRecord> peers;    // by rank
  std::vector<HostIdentity> hosts;  // by rank
  std::shared_ptr<net::Acceptor> acceptor;
  PendingStreams pending;
  net::Interrupt interrupt;

  [[nodiscard]] std::vector<net::Listener> exchange_addresses(const Bootstrap& bootstrap,
                                                              const std::string& interfaces);
  [[nodiscard]] std::optional<net::Listener> listen_on_loopback(const std::string& interfaces);
  void add(UniqueFd stream, const net::Hello& peer);
  [[nodiscard]] bool by_unix_socket(int peer, std::string_view label) const;
  [[nodiscard]] UniqueFd await(int peer, const std::string& label, Deadline deadline);
  [[nodiscard]] UniqueFd connect(int peer, const std::string& label, Deadline deadline);
};

// Returns the listeners whose addresses the other ranks know. Connections wait in the kernel's
// queue until the secret is known and they are accepted.
std::vector<net::Listener> PeerNetwork::Impl::exchange_addresses(const Bootstrap& bootstrap,
                                                                 const std::string& interfaces) {
  std::vector<net::Listener> listeners;
  listeners.emplace_back(Address{Address::Kind::unix_socket, "@", 0});
  PeerRecord own{HostIdentity::of_this_process(), listeners.front().address().to_string(), {}};
  std::optional<net::Listener> tcp = listen_on_loopback(interfaces);
  if (tcp) own.tcp_address = tcp->address().to_string();

  const std::string answer =
      bootstrap.decide("peers", detail::text_of(net::encode(own)), [&](const auto& records) {
        return std::string(
            detail::text_of(net::encode(make_table(records, !identity.secret.empty()))));
      });
  PeerTable table = net::decode_peer_table(detail::bytes_of(answer));
  if (std::ssize(table.ranks) != size) {
    throw Error(Errc::protocol,
                fmt::format("a peer table of {} ranks, not {}", table.ranks.size(), size));
  }
  if (identity.secret.empty()) identity.secret = table.secret;
  if (identity.secret.empty()) {
    throw Error(Errc::unauthenticated,
                "rank 0 has a secret and this rank has none; name it in HVD_SECRET_FILE on every "
                "rank");
  }

  const bool one_host = table.on_one_host();
  peers = std::move(table.ranks);
  if (!one_host) {
    // Only now is it known that the others need an address beyond the loopback.
    tcp.emplace(Address::parse(net::listen_address(interfaces, false)));
    const auto addresses = bootstrap.exchange("tcp", tcp->address().to_string());
    for (std::size_t rank = 0; rank < peers.size(); ++rank) {
      peers[rank].tcp_address = addresses[rank];
    }
  }
  if (tcp) listeners.push_back(std::move(*tcp));
  for (const PeerRecord& peer : peers) hosts.push_back(peer.host);
  return listeners;
}

// Ranks of one host can do without TCP, as in a network namespace whose loopback is down.
std::optional<net::Listener> PeerNetwork::Impl::listen_on_loopback(const std::string& interfaces) {
  try {
    return net::Listener(Address::parse(net::listen_address(interfaces, true)));
  } catch (const Error& error) {
    if (error.code() != Errc::resource) throw;
    log(LogLevel::info, identity.rank, error.what());
    return std::nullopt;
  }
}

void PeerNetwork::Impl::add(UniqueFd stream, const net::Hello& peer) {
  const bool expected = peer.from > identity.rank && peer.from < size;
  if (expected) pending.add(peer.from, peer.label, std::move(stream));
}

bool PeerNetwork::Impl::by_unix_socket(int peer, std::string_view label) const {
  const auto at = [this](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
  return at(peer).same_host(at(identity.rank)) && !label.starts_with(kTcpLabelPrefix);
}

UniqueFd PeerNetwork::Impl::await(int peer, const std::string& label, Deadline deadline) {
  const Deadline start = Clock::now();
  UniqueFd stream = pending.take(peer, label, deadline);
  if (stream) return stream;
  Fault fault;
  fault.rank = peer;
  fault.host = hosts[static_cast<std::size_t>(peer)].hostname;
  fault.cause = fmt::format("it did not connect for '{}'", label);
  fault.phase = "init";
  fault.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  throw Error(Errc::timeout, std::move(fault));
}

UniqueFd PeerNetwork::Impl::connect(int peer, const std::string& label, Deadline deadline) {
  const PeerRecord& there = peers[static_cast<std::size_t>(peer)];
  const std::string& address = by_unix_socket(peer, label) ? there.unix_address : there.tcp_address;
  if (address.empty()) {
    Fault fault;
    fault.rank = peer;
    fault.host = there.host.hostname;
    fault.cause = "it listens on no TCP port; its log says why with HVD_LOG=info";
    throw Error(Errc::resource, std::move(fault));
  }
  net::DialOptions options;
  options.address = Address::parse(address);
  options.peer = peer;
  options.host = there.host.hostname;
  options.label = label;
  options.deadline = deadline;
  options.refusal_patience = kRefusalPatience;
  return net::dial(options, identity, interrupt);
}

PeerNetwork::PeerNetwork(EventLoop& loop, const Bootstrap& bootstrap, const Identity& identity,
                         const std::string& interfaces)
    : impl_(std::make_shared<Impl>(loop, identity, bootstrap.size())) {
  if (identity.rank < 0 || identity.rank >= bootstrap.size()) {
    throw Error(Errc::invalid_argument,
                fmt::format("rank {} in a job of {} ranks", identity.rank, bootstrap.size()));
  }
  std::vector<net::Listener> listeners = impl_->exchange_addresses(bootstrap, interfaces);
  impl_->acceptor = std::make_shared<net::Acceptor>(
      loop, impl_->identity,
      [weak = std::weak_ptr<Impl>(impl_)](UniqueFd stream, const net::Hello& peer) {
        if (const auto impl = weak.lock()) impl->add(std::move(stream), peer);
      },
      // The peer that this rank waits for may be among those whose connections it cannot accept.
      [weak = std::weak_ptr<Impl>(impl_)](const std::string& why) {
        const auto impl = weak.lock();
        if (!impl) return;
        impl->pending.fail(
            fmt::format("rank {} cannot accept connections: {}", impl->identity.rank, why));
      });
  loop.run_sync([&] {
    for (net::Listener& listener : listeners) impl_->acceptor->listen(std::move(listener));
  });
}

PeerNetwork::~PeerNetwork() {
  abort();
  impl_->loop.run_sync([this] { impl_->acceptor->close(); });
}

UniqueFd PeerNetwork::open(int peer, std::string_view label, Deadline deadline) {
  if (peer < 0 || peer >= impl_->size || peer == impl_->identity.rank || !net::is_label(label)) {
    throw Error(Errc::invalid_argument,
                fmt::format("rank {} cannot open '{}' to rank {} of {}", impl_->identity.rank,
                            label, peer, impl_->size));
  }
  const std::string name(label);
  return peer > impl_->identity.rank ? impl_->await(peer, name, deadline)
                                     : impl_->connect(peer, name, deadline);
}

void PeerNetwork::abort() noexcept {
  impl_->pending.abort();
  impl_->interrupt.raise();
}

const std::vector<HostIdentity>& PeerNetwork::hosts() const noexcept { return impl_->hosts; }

}  // namespace hvd
