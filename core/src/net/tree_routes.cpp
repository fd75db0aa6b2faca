#include "net/tree_routes.hpp"

#include <algorithm>

namespace hvd::detail {
namespace {

constexpr int kLargestStar = 256;
// Rank 0 also decides, so it has fewer neighbours than a relay: with ten heartbeats a second each
// way these are 460 messages. With 80, three levels are enough for 149,000 ranks.
constexpr int kChildrenOfRoot = 23;
constexpr int kChildrenOfRelay = 80;

}  // namespace

TreeRoutes::TreeRoutes(int size, int fanout) noexcept
    : size_(size), children_of_root_(fanout), children_of_relay_(fanout) {
  if (fanout > 0) return;
  children_of_root_ = size <= kLargestStar ? kLargestStar : kChildrenOfRoot;
  children_of_relay_ = kChildrenOfRelay;
}

/// Returns the size of the blocks below a rank.
int TreeRoutes::block(const Place& place) const noexcept {
  const int children = place.rank == 0 ? children_of_root_ : children_of_relay_;
  const int below = place.end - place.rank - 1;
  return below / children + (below % children > 0 ? 1 : 0);
}

/// Returns the child on the way from a rank to one below it.
TreeRoutes::Place TreeRoutes::child_above(const Place& place, int rank) const noexcept {
  const int size = block(place);
  const int child = rank - (rank - place.rank - 1) % size;
  return {child, std::min(child + size, place.end), place.rank};
}

TreeRoutes::Place TreeRoutes::find(int rank) const noexcept {
  Place place{0, size_, -1};
  while (place.rank != rank) place = child_above(place, rank);
  return place;
}

std::vector<int> TreeRoutes::children(int rank) const {
  const Place place = find(rank);
  std::vector<int> result;
  for (int child = rank + 1; child < place.end; child += block(place)) result.push_back(child);
  return result;
}

int TreeRoutes::towards(int rank, int other) const noexcept {
  const Place place = find(rank);
  const bool below = other > rank && other < place.end;
  return below ? child_above(place, other).rank : place.parent;
}

}  // namespace hvd::detail
