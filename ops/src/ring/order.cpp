#include "ring/order.hpp"

#include <algorithm>
#include <numeric>

namespace hvd {

bool RingOrder::is_by_rank() const { return std::is_sorted(ranks.begin(), ranks.end()); }

RingOrder order_by_host(std::span<const int> host_of) {
  RingOrder order{.ranks = std::vector<int>(host_of.size()),
                  .positions = std::vector<int>(host_of.size())};
  std::iota(order.ranks.begin(), order.ranks.end(), 0);
  std::stable_sort(order.ranks.begin(), order.ranks.end(), [&](int a, int b) {
    return host_of[static_cast<std::size_t>(a)] < host_of[static_cast<std::size_t>(b)];
  });
  for (int position = 0; position < std::ssize(order.ranks); ++position) {
    const int rank = order.ranks[static_cast<std::size_t>(position)];
    order.positions[static_cast<std::size_t>(rank)] = position;
  }
  return order;
}

}  // namespace hvd
