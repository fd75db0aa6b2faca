// Tells which ranks have a stream with each other on the control channel. The functions have no
// side effects.
//
//   rank 0 ─┬─ 1, 2, …                       the rest of its own group
//           ├─ relay g ──┬─ g+1, g+2, …      its members
//           └─ relay 2g ─┴─ …
#pragma once

#include <vector>

namespace hvd::detail {

/// Consecutive ranks, which mostly share a host, form groups. The first rank of a group is its
/// relay; rank 0 is the relay of the first group. With only one group the tree is a star.
class TreeRoutes {
 public:
  /// `group` is the number of ranks of a group; 0 means that all ranks are one.
  TreeRoutes(int size, int group) noexcept
      : size_(size), group_(group > 0 && group < size ? group : size) {}

  [[nodiscard]] bool is_star() const noexcept { return group_ == size_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// Returns the neighbour on the way to rank 0, or -1 for rank 0 itself.
  [[nodiscard]] int parent(int rank) const noexcept;
  /// Returns the neighbours that reach rank 0 through `rank`, in ascending order.
  [[nodiscard]] std::vector<int> children(int rank) const;
  [[nodiscard]] bool is_relay(int rank) const { return rank != 0 && !children(rank).empty(); }
  /// Returns one more than the last rank below the stream between `child` and its parent; `child`
  /// is the first such rank.
  [[nodiscard]] int end_of(int child) const noexcept;
  /// Returns the neighbour of `rank` on the way to `other`.
  [[nodiscard]] int towards(int rank, int other) const noexcept;

 private:
  [[nodiscard]] int relay_of(int rank) const noexcept { return rank / group_ * group_; }

  int size_;
  int group_;
};

/// Returns the number of ranks of a group for a `Config::control_fanout`. With 0, jobs of up to 256
/// ranks are one group, and larger ones have groups of the square root of their size, rounded up.
[[nodiscard]] int control_group(int size, int fanout) noexcept;

}  // namespace hvd::detail
