#include <algorithm>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/log.hpp>
#include <hvd/core/peer_network.hpp>

#include "net/acceptor.hpp"
#include "net/dial.hpp"
#include "net/interfaces.hpp"
#include "net/parked_streams.hpp"
#include "net/roster.hpp"

namespace hvd {
namespace {

using net::PeerAddresses;

// Addresses are published by ranks that listen: a refusal means that the rank has gone.
constexpr std::chrono::milliseconds kRefusalPatience{1'000};

std::vector<HostIdentity> exchange_hosts(net::Roster& roster) {
  std::vector<HostIdentity> hosts;
  for (const Bytes& value : roster.exchange("host", net::encode(HostIdentity::of_this_process()))) {
    hosts.push_back(net::decode_host(value));
  }
  return hosts;
}

bool on_one_host(const std::vector<HostIdentity>& hosts) {
  return std::all_of(hosts.begin(), hosts.end(),
                     [&](const HostIdentity& host) { return host.same_host(hosts.front()); });
}

// Ranks of one host need no secret to reach each other by Unix sockets, but the TCP ports beside
// them are open to every user: those get a secret made up for this meeting, passed through the
// store, which has let in this user only.
Secret agree_on_secret(net::Roster& roster, const Identity& identity, bool one_host) {
  if (!identity.secret.empty()) return identity.secret;
  if (!one_host) {
    throw Error(Errc::unauthenticated,
                "the ranks run on several hosts and share no secret; put 32 random bytes into a "
                "file of mode 0600 and name it in HVD_SECRET_FILE on every rank");
  }
  const Secret proposed = identity.rank == 0 ? Secret::random() : Secret();
  const Bytes shared =
      roster.share("secret", Bytes(proposed.bytes().begin(), proposed.bytes().end()));
  if (shared.size() != Secret::kSize) throw Error(Errc::protocol, "malformed secret in the store");
  std::array<std::byte, Secret::kSize> bytes{};
  std::copy(shared.begin(), shared.end(), bytes.begin());
  return Secret(bytes);
}

}  // namespace

struct PeerNetwork::Impl {
  Impl(EventLoop& event_loop, const Identity& self, int ranks)
      : loop(event_loop), identity(self), size(ranks) {}

  EventLoop& loop;
  Identity identity;
  int size;
  std::vector<HostIdentity> hosts;
  std::vector<PeerAddresses> addresses;
  std::shared_ptr<net::Acceptor> acceptor;
  net::ParkedStreams parked;
  net::Interrupt interrupt;

  PeerAddresses listen(const std::string& interfaces, bool one_host);
  void park(UniqueFd stream, const net::Hello& peer);
  [[nodiscard]] bool by_unix_socket(int peer, std::string_view label) const;
  [[nodiscard]] UniqueFd await(int peer, const std::string& label, Deadline deadline);
  [[nodiscard]] UniqueFd connect(int peer, const std::string& label, Deadline deadline);
};

PeerAddresses PeerNetwork::Impl::listen(const std::string& interfaces, bool one_host) {
  std::vector<net::Listener> listeners;
  listeners.emplace_back(Address{Address::Kind::unix_socket, "@", 0});
  PeerAddresses own;
  own.unix_address = listeners.front().address().to_string();
  try {
    listeners.emplace_back(Address::parse(net::listen_address(interfaces, one_host)));
    own.tcp_address = listeners.back().address().to_string();
  } catch (const Error& error) {
    // One host gets along without TCP, in a network namespace whose loopback is down for instance.
    if (!one_host || error.code() != Errc::resource) throw;
    log(LogLevel::info, identity.rank, error.what());
  }
  loop.run_sync([&] {
    for (net::Listener& listener : listeners) acceptor->listen(std::move(listener));
  });
  return own;
}

void PeerNetwork::Impl::park(UniqueFd stream, const net::Hello& peer) {
  const bool expected = peer.from > identity.rank && peer.from < size;
  if (expected) parked.park(peer.from, peer.label, std::move(stream));
}

bool PeerNetwork::Impl::by_unix_socket(int peer, std::string_view label) const {
  const auto at = [this](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
  return at(peer).same_host(at(identity.rank)) && !label.starts_with(kTcpLabelPrefix);
}

UniqueFd PeerNetwork::Impl::await(int peer, const std::string& label, Deadline deadline) {
  const Deadline start = Clock::now();
  UniqueFd stream = parked.take(peer, label, deadline);
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
  const PeerAddresses& there = addresses[static_cast<std::size_t>(peer)];
  const std::string& address = by_unix_socket(peer, label) ? there.unix_address : there.tcp_address;
  if (address.empty()) {
    throw Error(Errc::resource, fmt::format("rank {} listens on no TCP port", peer));
  }
  net::DialOptions options;
  options.address = Address::parse(address);
  options.peer = peer;
  options.host = hosts[static_cast<std::size_t>(peer)].hostname;
  options.label = label;
  options.deadline = deadline;
  options.refusal_patience = kRefusalPatience;
  return net::dial(options, identity, interrupt);
}

PeerNetwork::PeerNetwork(EventLoop& loop, Store& store, const Identity& identity, int size,
                         const std::string& interfaces, Deadline deadline)
    : impl_(std::make_shared<Impl>(loop, identity, size)) {
  if (size < 1 || identity.rank < 0 || identity.rank >= size) {
    throw Error(Errc::invalid_argument,
                fmt::format("rank {} in a job of {} ranks", identity.rank, size));
  }
  net::Roster roster(store, identity.rank, size, deadline);
  impl_->hosts = exchange_hosts(roster);
  const bool one_host = on_one_host(impl_->hosts);
  impl_->identity.secret = agree_on_secret(roster, identity, one_host);
  impl_->acceptor = std::make_shared<net::Acceptor>(
      loop, impl_->identity,
      [weak = std::weak_ptr<Impl>(impl_)](UniqueFd stream, const net::Hello& peer) {
        if (const auto impl = weak.lock()) impl->park(std::move(stream), peer);
      });
  try {
    const PeerAddresses own = impl_->listen(interfaces, one_host);
    for (const Bytes& value : roster.exchange("addr", net::encode(own))) {
      impl_->addresses.push_back(net::decode_addresses(value));
    }
  } catch (...) {
    loop.run_sync([this] { impl_->acceptor->close(); });
    throw;
  }
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
  impl_->parked.abort();
  impl_->interrupt.raise();
}

const std::vector<HostIdentity>& PeerNetwork::hosts() const noexcept { return impl_->hosts; }

}  // namespace hvd
