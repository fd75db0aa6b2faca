// The control channel's star: one FIFO stream each way between rank 0 and every other rank.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include <hvd/core/wire.hpp>

#include "delays.hpp"
#include "event_queue.hpp"
#include "trace.hpp"

namespace hvd::sim {

class Network {
 public:
  struct Receiver {
    std::function<void(int from, int to, const Bytes&)> message;
    std::function<void(int to, int peer)> lost;
  };

  Network(int ranks, EventQueue& events, Delays& delays, Trace& trace, Receiver receiver);

  void send(int from, int to, Bytes bytes);
  /// Nothing passes from one to the other until then; nothing is lost.
  void withhold(int from, int to, Nanos until);
  /// The rank closes its streams: what it has sent arrives first.
  void close(int rank);
  /// The rank is gone: of what it has sent last, something may be lost with it.
  void crash(int rank, Random& random);

 private:
  struct Stream {
    std::deque<std::optional<Bytes>> items;  // nothing: the end of the stream
    Nanos last = 0;
    Nanos withheld_until = 0;
    bool closed = false;
  };

  [[nodiscard]] Stream& stream(int from, int to) {
    return streams_[static_cast<std::size_t>(from == 0 ? 2 * to : 2 * from + 1)];
  }
  void push(int from, int to, std::optional<Bytes> item, Nanos delay);
  void deliver(int from, int to);
  template <class Visit>
  void for_peers(int rank, const Visit& visit) {
    for (int peer = rank == 0 ? 1 : 0; peer < (rank == 0 ? ranks_ : 1); ++peer) visit(peer);
  }

  int ranks_;
  EventQueue& events_;
  Delays& delays_;
  Trace& trace_;
  Receiver receiver_;
  std::vector<Stream> streams_;  // 2r: from 0 to r; 2r + 1: from r to 0
};

}  // namespace hvd::sim
