#include "network.hpp"

#include <algorithm>
#include <utility>

namespace hvd::sim {

Network::Network(const TreeRoutes& routes, EventQueue& events, Delays& delays, Trace& trace,
                 Receiver receiver)
    : routes_(routes),
      events_(events),
      delays_(delays),
      trace_(trace),
      receiver_(std::move(receiver)),
      streams_(static_cast<std::size_t>(2 * routes.size())) {}

std::vector<int> Network::neighbours(int rank) const {
  std::vector<int> result = routes_.children(rank);
  if (rank != 0) result.insert(result.begin(), routes_.parent(rank));
  return result;
}

void Network::push(int from, int to, Item item) {
  Stream& it = stream(from, to);
  if (it.closed && item.kind != Kind::end) return;
  const Nanos delay = delays_.message(from, to);
  it.items.push_back(std::move(item));
  it.last = std::max(it.last, events_.now() + delay);
  events_.at(it.last, to, [this, from, to] { deliver(from, to); });
}

void Network::send(int from, int to, Bytes bytes) {
  const int next = routes_.towards(from, to);
  if (routes_.is_star() || (from != 0 && to != 0)) {
    push(from, to, {Kind::neighbour, {}, std::move(bytes)});
  } else if (from == 0 || next == 0) {
    gather(from, next, from == 0 ? to : from, bytes);
  } else {
    push(from, next, {Kind::root, {}, std::move(bytes)});
  }
}

void Network::gather(int from, int to, int rank, const Bytes& bytes) {
  Stream& it = stream(from, to);
  if (it.closed) return;
  it.waiting.push(rank, bytes);
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
  net::MergeQueue::Entry oldest = stream(from, to).waiting.pop();
  merged_ += oldest.ranks.ranks().size() - 1;
  push(from, to, {Kind::group, std::move(oldest.ranks), std::move(oldest.message)});
}

void Network::withhold(int from, int to, Nanos until) { stream(from, to).withheld_until = until; }

void Network::deliver(int from, int to) {
  Stream& it = stream(from, to);
  if (it.items.empty()) return;  // lost in a crash
  if (it.withheld_until > events_.now()) {
    events_.at(it.withheld_until, to, [this, from, to] { deliver(from, to); });
    return;
  }
  const Item item = std::move(it.items.front());
  it.items.pop_front();
  trace_.mix(static_cast<std::uint64_t>(events_.now()));
  trace_.mix(static_cast<std::uint64_t>(from * 256 + to));
  if (item.kind == Kind::end) return receiver_.lost(to, from);
  trace_.mix(item.bytes);
  take(from, to, item);
}

void Network::take(int from, int to, const Item& item) {
  if (item.kind == Kind::neighbour) return receiver_.message(from, to, item.bytes);
  if (item.kind == Kind::root) {
    // Of a member on its way up, or to a member.
    if (routes_.parent(from) == to) return gather(to, 0, from, item.bytes);
    return receiver_.message(0, to, item.bytes);
  }
  for (const int rank : item.ranks.ranks()) {
    if (to == 0) {
      receiver_.message(rank, 0, item.bytes);
    } else if (rank != to) {
      push(to, rank, {Kind::root, {}, item.bytes});
    }
  }
  if (to != 0 && item.ranks.contains(to)) receiver_.message(0, to, item.bytes);
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
