// Small asynchronous messages between rank 0 and the others. Loop thread only.
#pragma once

#include <memory>
#include <span>
#include <string>

#include <hvd/core/event_loop.hpp>
#include <hvd/core/peer_network.hpp>
#include <hvd/core/wire.hpp>

namespace hvd {

class ControlChannel {
 public:
  /// Called on the loop thread, never from inside `send`.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void on_message(int from, std::span<const std::byte> message) = 0;
    /// Once per peer: the stream ended or broke; nothing more comes from it.
    virtual void on_lost(int peer, const std::string& cause) = 0;
  };

  virtual ~ControlChannel() = default;
  /// Messages that came earlier were kept and are delivered now. `listener` outlives the channel
  /// or its `close()`.
  virtual void start(Listener& listener) = 0;
  /// Queues one message of at most 64 MiB, less 64 KiB in a tree; in order per peer. To a lost
  /// peer: dropped.
  virtual void send(int to, Bytes message) = 0;
  /// Sends what is queued as far as the sockets take it without blocking, then closes; the
  /// listener is not called again.
  virtual void close() noexcept = 0;
};

/// A star: rank 0 talks to everyone, the others to rank 0. Collective; blocks until connected.
/// Not on the loop thread.
[[nodiscard]] std::unique_ptr<ControlChannel> make_star_channel(EventLoop& loop,
                                                                PeerNetwork& network, int rank,
                                                                int size, Deadline deadline);

/// The star, or for more ranks than `fanout` a tree: rank 0 talks to everyone through relays, each
/// the first of about `fanout` consecutive ranks, its members; a relay also to its members. Lost
/// peers are told to their neighbours only. `fanout` as in `Config::control_fanout`. Otherwise as
/// `make_star_channel`.
[[nodiscard]] std::unique_ptr<ControlChannel> make_control_channel(EventLoop& loop,
                                                                   PeerNetwork& network, int rank,
                                                                   int size, int fanout,
                                                                   Deadline deadline);

}  // namespace hvd
