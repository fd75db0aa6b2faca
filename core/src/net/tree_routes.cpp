#include "net/tree_routes.hpp"

#include <algorithm>

namespace hvd::detail {
namespace {

constexpr int kLargestStar = 256;

}  // namespace

int TreeRoutes::parent(int rank) const noexcept {
  if (rank == 0) return -1;
  const int relay = relay_of(rank);
  return relay == rank ? 0 : relay;
}

std::vector<int> TreeRoutes::children(int rank) const {
  std::vector<int> result;
  if (rank % group_ != 0) return result;
  for (int member = rank + 1; member < std::min(rank + group_, size_); ++member) {
    result.push_back(member);
  }
  if (rank != 0) return result;
  for (int relay = group_; relay < size_; relay += group_) result.push_back(relay);
  return result;
}

int TreeRoutes::end_of(int child) const noexcept {
  return child % group_ == 0 ? std::min(child + group_, size_) : child + 1;
}

int TreeRoutes::towards(int rank, int other) const noexcept {
  if (rank == 0) return relay_of(other) == 0 ? other : relay_of(other);
  if (relay_of(rank) != rank) return relay_of(rank);  // a member has no other neighbour
  return relay_of(other) == rank ? other : 0;
}

int control_group(int size, int fanout) noexcept {
  if (fanout > 0) return std::min(fanout, size);
  if (size <= kLargestStar) return size;
  int root = 1;
  while (root * root < size) ++root;
  return root;
}

}  // namespace hvd::detail
