// The control channel: a FIFO stream each way between neighbours of a star or of a tree, and what a
// relay's channel does with what passes through it.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include <hvd/core/wire.hpp>

#include "delays.hpp"
#include "event_queue.hpp"
#include "net/merge_queue.hpp"
#include "net/tree_routes.hpp"
#include "trace.hpp"

namespace hvd::sim {

class Network {
 public:
  struct Receiver {
    std::function<void(int from, int to, const Bytes&)> message;
    std::function<void(int to, int peer)> lost;
  };

  Network(const TreeRoutes& routes, EventQueue& events, Delays& delays, Trace& trace,
          Receiver receiver);

  [[nodiscard]] const TreeRoutes& routes() const noexcept { return routes_; }
  /// How many messages of several ranks travelled as one.
  [[nodiscard]] std::uint64_t merged() const noexcept { return merged_; }

  void send(int from, int to, Bytes bytes);
  /// Nothing passes from one neighbour to the other until then; nothing is lost.
  void withhold(int from, int to, Nanos until);
  /// The rank closes its streams: what it has sent arrives first.
  void close(int rank);
  /// The rank is gone: of what it has sent last, something may be lost with it.
  void crash(int rank, Random& random);

 private:
  enum class Kind {
    neighbour,  ///< between the two ends of the stream
    root,       ///< between rank 0 and the member at the end of the stream
    group,      ///< between rank 0 and some of a child's group
    end,        ///< of the stream
  };
  struct Item {
    Kind kind = Kind::end;
    net::RankSet ranks{};
    Bytes bytes{};
  };
  struct Stream {
    std::deque<Item> items;
    Nanos last = 0;
    Nanos withheld_until = 0;
    bool closed = false;
    net::MergeQueue waiting;  // of the sender: for the end of its turn, or for room
    bool due = false;
  };

  /// Of neighbours. 2r: to r from its parent; 2r + 1: from r to its parent.
  [[nodiscard]] Stream& stream(int from, int to) {
    return streams_[static_cast<std::size_t>(routes_.parent(to) == from ? 2 * to : 2 * from + 1)];
  }
  [[nodiscard]] std::vector<int> neighbours(int rank) const;
  void push(int from, int to, Item item);
  void gather(int from, int to, int rank, const Bytes& bytes);
  void flush(int from, int to);
  void push_oldest(int from, int to);
  void deliver(int from, int to);
  void take(int from, int to, const Item& item);
  void end(int rank, int peer);

  TreeRoutes routes_;
  EventQueue& events_;
  Delays& delays_;
  Trace& trace_;
  Receiver receiver_;
  std::vector<Stream> streams_;
  std::uint64_t merged_ = 0;
};

}  // namespace hvd::sim
