// Models the control channel: a FIFO stream in each direction between neighbours in the control
// tree, with the product's router and combining queue.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <hvd/core/internal/wire.hpp>

#include "delays.hpp"
#include "event_queue.hpp"
#include "net/control_router.hpp"
#include "net/tree_routes.hpp"
#include "trace.hpp"

namespace hvd::sim {

class Network {
 public:
  struct Receiver {
    std::function<void(const std::vector<int>& from, int to, std::span<const std::byte>)> message;
    std::function<void(int to, int peer)> lost;
  };

  Network(const detail::TreeRoutes& routes, EventQueue& events, Delays& delays, Trace& trace,
          Receiver receiver);

  [[nodiscard]] const detail::TreeRoutes& routes() const noexcept { return routes_; }
  /// Returns the number of streams between a rank and rank 0.
  [[nodiscard]] int level(int rank) const;
  /// Tells whether all that `rank` hears from rank 0 passes through `relay`.
  [[nodiscard]] bool behind(int relay, int rank) const {
    return rank > relay && rank < routes_.end_of(relay);
  }
  /// Returns how many messages relays have combined with an equal one.
  [[nodiscard]] std::uint64_t merged() const noexcept { return merged_; }

  void send(int from, const std::vector<int>& to, const Bytes& bytes);
  /// Cuts the stream from `from` to `to` until `until`. Bytes arrive no sooner than `resumes`,
  /// since TCP waits longer and longer before it sends again. Nothing is lost.
  void withhold(int from, int to, Nanos until, Nanos resumes);
  /// Returns when the kernel of a rank's neighbour last acknowledged the rank's bytes.
  [[nodiscard]] Nanos host_answered(int rank, int neighbour);
  /// Does the work of `ControlChannel::delivered`: tells whether the hosts of the rank's children
  /// have acknowledged all that was sent to them. Children whose hosts have been silent for longer
  /// than `silence` do not count. With `one_host` nothing has to travel unless the stream is cut.
  [[nodiscard]] bool delivered(int rank, Nanos silence, bool one_host);
  /// The rank closes its streams; the messages that it has sent arrive first.
  void close(int rank);
  /// The rank crashes; some of its last messages may be lost.
  void crash(int rank, Random& random);

 private:
  class Endpoint final : public net::ControlRouter::Actions {
   public:
    Endpoint(Network& network, int rank)
        : router(network.routes_, rank, *this), network_(network), rank_(rank) {}
    void write(int neighbour, const net::RankSet& ranks,
               std::span<const std::byte> message) override {
      network_.write(rank_, neighbour, ranks, message);
    }
    void deliver(const std::vector<int>& from, std::span<const std::byte> message) override {
      network_.receiver_.message(from, rank_, message);
    }

    net::ControlRouter router;

   private:
    Network& network_;
    int rank_;
  };
  struct Item {
    bool end = true;  ///< end of the stream, else a message
    net::RankSet ranks{};
    Bytes bytes{};
  };
  struct Stream {
    std::deque<Item> items;
    Nanos last = 0;
    Nanos withheld_since = 0;
    Nanos withheld_until = 0;
    Nanos resumes = 0;
    bool closed = false;
    net::CombiningQueue waiting;  // of a relay; waits for the end of its turn, or for room
    bool due = false;
  };

  /// Returns the stream between two neighbours. Index 2r leads to r from its parent, and 2r + 1
  /// from r to its parent.
  [[nodiscard]] Stream& stream(int from, int to) {
    return streams_[static_cast<std::size_t>(routes_.parent(to) == from ? 2 * to : 2 * from + 1)];
  }
  [[nodiscard]] std::vector<int> neighbours(int rank) const;
  void write(int from, int to, const net::RankSet& ranks, std::span<const std::byte> message);
  void push(int from, int to, Item item);
  void flush(int from, int to);
  void push_oldest(int from, int to);
  void deliver(int from, int to);
  void end(int rank, int peer);

  detail::TreeRoutes routes_;
  EventQueue& events_;
  Delays& delays_;
  Trace& trace_;
  Receiver receiver_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;  // by rank
  std::vector<Stream> streams_;
  std::uint64_t merged_ = 0;
};

}  // namespace hvd::sim
