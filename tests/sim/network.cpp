#include "network.hpp"

#include <algorithm>
#include <utility>

namespace hvd::sim {

Network::Network(int ranks, EventQueue& events, Delays& delays, Trace& trace, Receiver receiver)
    : ranks_(ranks),
      events_(events),
      delays_(delays),
      trace_(trace),
      receiver_(std::move(receiver)),
      streams_(static_cast<std::size_t>(2 * ranks)) {}

void Network::push(int from, int to, std::optional<Bytes> item, Nanos delay) {
  Stream& it = stream(from, to);
  it.items.push_back(std::move(item));
  it.last = std::max(it.last, events_.now() + delay);
  events_.at(it.last, to, [this, from, to] { deliver(from, to); });
}

void Network::send(int from, int to, Bytes bytes) {
  if (stream(from, to).closed) return;
  push(from, to, std::move(bytes), delays_.message(from, to));
}

void Network::withhold(int from, int to, Nanos until) { stream(from, to).withheld_until = until; }

void Network::deliver(int from, int to) {
  Stream& it = stream(from, to);
  if (it.items.empty()) return;  // lost in a crash
  if (it.withheld_until > events_.now()) {
    events_.at(it.withheld_until, to, [this, from, to] { deliver(from, to); });
    return;
  }
  const std::optional<Bytes> item = std::move(it.items.front());
  it.items.pop_front();
  trace_.mix(static_cast<std::uint64_t>(events_.now()));
  trace_.mix(static_cast<std::uint64_t>(from * 256 + to));
  if (!item) return receiver_.lost(to, from);
  trace_.mix(*item);
  receiver_.message(from, to, *item);
}

void Network::close(int rank) {
  for_peers(rank, [&](int peer) {
    Stream& out = stream(rank, peer);
    if (std::exchange(out.closed, true)) return;
    push(rank, peer, std::nullopt, delays_.message(rank, peer));
    stream(peer, rank).closed = true;
    stream(peer, rank).items.clear();
  });
}

void Network::crash(int rank, Random& random) {
  for_peers(rank, [&](int peer) {
    Stream& out = stream(rank, peer);
    if (std::exchange(out.closed, true)) return;
    const std::size_t kept =
        random.chance(50) ? out.items.size() : random.next() % (out.items.size() + 1);
    while (out.items.size() > kept) out.items.pop_back();
    push(rank, peer, std::nullopt, delays_.message(rank, peer));
    stream(peer, rank).closed = true;
    stream(peer, rank).items.clear();
  });
}

}  // namespace hvd::sim
