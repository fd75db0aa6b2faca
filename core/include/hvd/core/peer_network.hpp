// Authenticated byte streams between the ranks of a job, by rank and label.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/core/event_loop.hpp>
#include <hvd/core/fd.hpp>
#include <hvd/core/secret.hpp>
#include <hvd/core/store.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// Where a rank runs. Ranks share a host when boot id and network namespace are equal: then they
/// reach each other by abstract Unix sockets and can pass descriptors.
struct HostIdentity {
  std::string hostname;
  std::string boot_id;
  std::uint64_t network_namespace = 0;  ///< inode

  [[nodiscard]] static HostIdentity of_this_process();
  [[nodiscard]] bool same_host(const HostIdentity& other) const noexcept {
    return boot_id == other.boot_id && network_namespace == other.network_namespace;
  }
};

/// Listens on an abstract Unix socket, and on TCP when some rank runs on another host; publishes
/// its addresses in the store; accepts and authenticates on the loop thread.
class PeerNetwork {
 public:
  /// Collective over the ranks of the store: returns once all have published. `loop` and `store`
  /// outlive it. Throws Errc::timeout naming the ranks that did not come.
  PeerNetwork(EventLoop& loop, Store& store, const Identity& identity, int size,
              const std::string& interfaces, Deadline deadline);
  ~PeerNetwork();
  PeerNetwork(const PeerNetwork&) = delete;
  PeerNetwork& operator=(const PeerNetwork&) = delete;

  /// Both ranks call it with the same label; the lower one accepts. A connected, authenticated,
  /// non-blocking stream: a Unix socket to a rank of the same host, else TCP without delay.
  /// Any thread but the loop's; blocks until the peer has come or `deadline`.
  /// Throws Errc::timeout or Errc::peer_lost naming the peer.
  [[nodiscard]] UniqueFd open(int peer, std::string_view label, Deadline deadline);
  /// Makes every `open`, running or later, throw Errc::aborted. Any thread.
  void abort() noexcept;

  [[nodiscard]] const std::vector<HostIdentity>& hosts() const noexcept;  ///< by rank

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// Forces TCP between ranks of one host, for tests and `HVD_TRANSPORT=tcp`: a label with this
/// prefix is opened over TCP on loopback.
inline constexpr std::string_view kTcpLabelPrefix = "tcp/";

}  // namespace hvd
