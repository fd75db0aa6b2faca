// Opens authenticated byte streams between the ranks of a job, by rank and label.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/core/internal/bootstrap.hpp>
#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/internal/host_identity.hpp>
#include <hvd/core/internal/secret.hpp>
#include <hvd/core/topology.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// Listens on an abstract Unix socket and on TCP, on the loopback when all ranks run on one host,
/// and tells the other ranks its addresses. It accepts and authenticates streams on the loop
/// thread. Streams between ranks are opened when `open` is called.
class PeerNetwork {
 public:
  /// Collective over the ranks of `bootstrap`, which is used for the call only. `loop` outlives
  /// this object. Throws Errc::timeout naming the ranks that did not arrive.
  PeerNetwork(EventLoop& loop, const Bootstrap& bootstrap, const Identity& identity,
              const std::string& interfaces);
  ~PeerNetwork();
  PeerNetwork(const PeerNetwork&) = delete;
  PeerNetwork& operator=(const PeerNetwork&) = delete;

  /// Returns a connected, authenticated, non-blocking stream: a Unix socket to a rank of the same
  /// host, and otherwise TCP without delay. Both ranks call it with the same label, and the lower
  /// one accepts. Any thread but the loop's may call it; it blocks until the peer calls it too, or
  /// until `deadline`. Throws Errc::timeout or Errc::peer_lost naming the peer.
  [[nodiscard]] UniqueFd open(int peer, std::string_view label, Deadline deadline);
  /// Makes every `open`, running or later, throw Errc::aborted. Any thread may call it.
  void abort() noexcept;

  [[nodiscard]] const std::vector<HostIdentity>& hosts() const noexcept;  ///< by rank

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// A stream whose label has this prefix uses TCP also between ranks of one host, for tests and
/// `HVD_TRANSPORT=tcp`.
inline constexpr std::string_view kTcpLabelPrefix = "tcp/";

}  // namespace hvd
