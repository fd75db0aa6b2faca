#include "network.hpp"

#include <algorithm>
#include <utility>

namespace hvd::sim {

Network::Network(const detail::TreeRoutes& routes, EventQueue& events, Delays& delays, Trace& trace,
                 Receiver receiver)
    : routes_(routes),
      events_(events),
      delays_(delays),
      trace_(trace),
      receiver_(std::move(receiver)),
      streams_(static_cast<std::size_t>(2 * routes.size())) {
  for (int rank = 0; rank < routes.size(); ++rank) {
    endpoints_.push_back(std::make_unique<Endpoint>(*this, rank));
  }
}

int Network::level(int rank) const {
  int level = 0;
  for (; rank != 0; rank = routes_.parent(rank)) ++level;
  return level;
}

std::vector<int> Network::neighbours(int rank) const {
  std::vector<int> result = routes_.children(rank);
  if (rank != 0) result.insert(result.begin(), routes_.parent(rank));
  return result;
}

void Network::push(int from, int to, Item item) {
  Stream& it = stream(from, to);
  if (it.closed && !item.end) return;
  const Nanos delay = delays_.message(from, to);
  it.items.push_back(std::move(item));
  it.last = std::max(it.last, events_.now() + delay);
  events_.at(it.last, to, [this, from, to] { deliver(from, to); });
}

void Network::send(int from, const std::vector<int>& to, const Bytes& bytes) {
  endpoints_[static_cast<std::size_t>(from)]->router.send(to, bytes);
}

void Network::write(int from, int to, const net::RankSet& ranks,
                    std::span<const std::byte> message) {
  const bool to_root = to == routes_.parent(from) && !ranks.ranges().empty();
  if (!to_root || !routes_.is_relay(from)) {
    return push(from, to, {false, ranks, Bytes(message.begin(), message.end())});
  }
  Stream& it = stream(from, to);
  if (it.closed) return;
  it.waiting.push(ranks, message);
  if (std::exchange(it.due, true)) return;
  events_.at(events_.now() + delays_.turn(), from, [this, from, to] { flush(from, to); });
}

void Network::flush(int from, int to) {
  Stream& it = stream(from, to);
  it.due = false;
  while (!it.waiting.empty()) {
    push_oldest(from, to);
    const Nanos full = delays_.full();
    if (full == 0 || it.waiting.empty()) continue;
    it.due = true;
    events_.at(events_.now() + full, from, [this, from, to] { flush(from, to); });
    return;
  }
}

void Network::push_oldest(int from, int to) {
  net::CombiningQueue::Entry oldest = stream(from, to).waiting.pop();
  merged_ += oldest.senders.ranks().size() - 1;
  push(from, to, {false, std::move(oldest.senders), std::move(oldest.message)});
}

void Network::withhold(int from, int to, Nanos until, Nanos resumes) {
  Stream& it = stream(from, to);
  it.withheld_since = events_.now();
  it.withheld_until = until;
  it.resumes = resumes;
}

Nanos Network::host_answered(int rank, int neighbour) {
  Nanos last = events_.now();
  // An acknowledgement needs both directions of the stream.
  for (const Stream* const way : {&stream(rank, neighbour), &stream(neighbour, rank)}) {
    if (way->withheld_until > events_.now()) last = std::min(last, way->withheld_since);
  }
  return last;
}

bool Network::delivered(int rank, Nanos silence, bool one_host) {
  const Nanos time = events_.now();
  const std::vector<int> children = routes_.children(rank);
  return std::all_of(children.begin(), children.end(), [&](int child) {
    const Stream& out = stream(rank, child);
    if (out.closed || time - host_answered(rank, child) > silence) return true;
    // The host of a child that is stopped has what has arrived, although the child has not read it.
    const bool arrived =
        out.items.empty() || ((one_host || out.last <= time) && out.resumes <= time);
    return arrived && stream(child, rank).withheld_until <= time;  // the acknowledgement's way
  });
}

void Network::deliver(int from, int to) {
  Stream& it = stream(from, to);
  if (it.items.empty()) return;  // lost in a crash
  if (it.resumes > events_.now()) {
    events_.at(it.resumes, to, [this, from, to] { deliver(from, to); });
    return;
  }
  const Item item = std::move(it.items.front());
  it.items.pop_front();
  trace_.mix(static_cast<std::uint64_t>(events_.now()));
  trace_.mix(static_cast<std::uint64_t>(from * 256 + to));
  if (item.end) return receiver_.lost(to, from);
  trace_.mix(item.bytes);
  endpoints_[static_cast<std::size_t>(to)]->router.receive(from, item.ranks, item.bytes);
}

void Network::end(int rank, int peer) {
  push(rank, peer, Item{});
  stream(peer, rank).closed = true;
  stream(peer, rank).items.clear();
  stream(peer, rank).waiting = {};
}

void Network::close(int rank) {
  for (const int peer : neighbours(rank)) {
    Stream& out = stream(rank, peer);
    while (!out.waiting.empty()) push_oldest(rank, peer);
    if (std::exchange(out.closed, true)) continue;
    end(rank, peer);
  }
}

void Network::crash(int rank, Random& random) {
  for (const int peer : neighbours(rank)) {
    Stream& out = stream(rank, peer);
    out.waiting = {};
    if (std::exchange(out.closed, true)) continue;
    const std::size_t kept =
        random.chance(50) ? out.items.size() : random.next() % (out.items.size() + 1);
    while (out.items.size() > kept) out.items.pop_back();
    end(rank, peer);
  }
}

}  // namespace hvd::sim
