#include <algorithm>

#include "ring/algorithms.hpp"

namespace hvd::detail {
namespace {

constexpr std::size_t kTreeBytes = std::size_t{64} << 10;
constexpr std::size_t kSegment = std::size_t{256} << 10;

/// Converts between ranks and their positions, which are counted from the root.
struct Order {
  int root;
  int size;
  [[nodiscard]] int position(int rank) const { return (rank - root + size) % size; }
  [[nodiscard]] int rank(int position) const { return (position + root) % size; }
};

/// Sends the data down a binomial tree. The rank at position p receives it from position p minus
/// the lowest set bit of p, and then sends it to p + d for d = half of that bit, a quarter, … 1:
/// the farthest child comes first, because it has the most descendants. After t turns 2^t ranks
/// have it.
void tree(Transport& transport, const Order& order, std::byte* data, std::size_t size,
          Deadline deadline) {
  const int me = order.position(transport.rank());
  int reach = 1;  // twice the distance of the farthest child: the lowest set bit of the position
  while (reach < order.size && (me & reach) == 0) reach *= 2;
  if (me != 0) {
    transport.exchange({}, {.peer = order.rank(me - reach), .size = size, .into = data, .sink = {}},
                       deadline);
  }
  for (int distance = reach / 2; distance > 0; distance /= 2) {
    if (me + distance >= order.size) continue;
    transport.exchange({.peer = order.rank(me + distance), .bytes = {data, size}}, {}, deadline);
  }
}

/// Sends the data along a chain of all positions in segments: in each exchange a rank sends one
/// segment to the next position and receives the next segment from the previous position. So s
/// segments arrive at the last of n ranks after s + n - 2 exchanges.
void chain(Transport& transport, const Order& order, std::byte* data, std::size_t size,
           Deadline deadline) {
  const int me = order.position(transport.rank());
  const bool first = me == 0;
  const bool last = me == order.size - 1;
  const auto segment_size = [&](std::size_t begin) { return std::min(kSegment, size - begin); };
  std::size_t sent = 0;
  std::size_t received = first ? size : 0;
  while (received < size || (!last && sent < size)) {
    Outgoing out;
    Incoming in;
    if (!last && sent < received) {
      out = {.peer = order.rank(me + 1), .bytes = {data + sent, segment_size(sent)}};
    }
    if (received < size) {
      in = {.peer = order.rank(me - 1),
            .size = segment_size(received),
            .into = data + received,
            .sink = {}};
    }
    transport.exchange(out, in, deadline);
    sent += out.bytes.size();
    received += in.size;
  }
}

}  // namespace

void broadcast_bytes(Transport& transport, std::byte* data, std::size_t size, int root,
                     Deadline deadline) {
  if (size == 0 || transport.size() == 1) return;
  const Order order{.root = root, .size = transport.size()};
  const auto& run = size <= kTreeBytes ? tree : chain;
  run(transport, order, data, size, deadline);
}

}  // namespace hvd::detail
