// Sends small asynchronous messages between rank 0 and the other ranks, on the loop thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <hvd/core/internal/event_loop.hpp>
#include <hvd/core/internal/peer_network.hpp>
#include <hvd/core/internal/wire.hpp>

namespace hvd {

/// The largest message in bytes.
inline constexpr std::size_t kMaxControlMessage = std::size_t{63} << 20;

/// Rank 0 sends to any ranks, and any rank sends to rank 0. In a large job (see
/// `make_control_channel`) these messages pass through relays, and a relay and its neighbours also
/// send to each other.
class ControlChannel {
 public:
  /// The channel calls it on the loop thread, never from inside `send`.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// Each of the ranks `from`, which are ascending, has sent this message. On rank 0 they may be
    /// several.
    virtual void on_message(const std::vector<int>& from, std::span<const std::byte> message) = 0;
    /// The stream with this neighbour has ended or broken, so nothing more arrives from it. The
    /// channel calls this at most once for each neighbour, and for no other rank.
    virtual void on_lost(int peer, const std::string& cause) = 0;
  };

  virtual ~ControlChannel() = default;
  /// Starts to deliver messages, also those that arrived earlier. `listener` lives at least until
  /// `close()` or the end of the channel.
  virtual void start(Listener& listener) = 0;
  /// Sends one message to each rank of `to`. The messages of one rank to another arrive in the
  /// order sent; those to a lost neighbour are dropped. When this returns, the sockets have taken
  /// all that they have room for, which arrives even if the process ends at once, unless the
  /// network fails (see `delivered`); the rest is queued. Only a relay's messages to rank 0 are
  /// written later, at the end of the loop's turn. Throws Errc::invalid_argument when the message
  /// is too long or no route leads to one of the ranks.
  virtual void send(std::span<const int> to, std::span<const std::byte> message) = 0;
  /// Returns when the host of `peer`, a neighbour of this rank, last acknowledged bytes, which its
  /// kernel does also while the peer is stopped. Returns the present time when the peer runs on
  /// this host.
  [[nodiscard]] virtual Clock::time_point host_answered(int peer) const = 0;
  /// Tells whether all that was sent to the neighbours below this rank has arrived at their hosts,
  /// or their streams have ended. Before that, what was sent may be lost if this process ends,
  /// because the system answers a neighbour's next message with a reset. Neighbours whose hosts
  /// have been silent for longer than `silence` do not count.
  [[nodiscard]] virtual bool delivered(Clock::duration silence) const = 0;
  /// Sends what is queued as far as the sockets take it without blocking, then closes; the
  /// listener is not called again.
  virtual void close() noexcept = 0;
};

/// Connects the ranks as a tree in which each has at most `fanout` children (as in
/// `Config::control_fanout`). A rank other than 0 that has children is a relay. A neighbour that
/// leaves more than `max_backlog` bytes unread is lost. Collective; blocks until connected, so the
/// loop thread must not call it. Throws what `PeerNetwork::open` throws.
[[nodiscard]] std::unique_ptr<ControlChannel> make_control_channel(
    EventLoop& loop, PeerNetwork& network, int rank, int size, int fanout, Deadline deadline,
    std::size_t max_backlog = std::size_t{128} << 20);

}  // namespace hvd
