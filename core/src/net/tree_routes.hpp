// Who talks to whom on the control channel. Pure.
//
//   rank 0 ─┬─ 1, 2, …                       the rest of its own group
//           ├─ relay g ──┬─ g+1, g+2, …      its members
//           └─ relay 2g ─┴─ …
#pragma once

#include <vector>

namespace hvd {

/// Groups of consecutive ranks, which mostly share a host; the first of each is its relay, and rank
/// 0 is that of the first. A star is one group.
class TreeRoutes {
 public:
  /// `group`: ranks of a group; 0: all.
  TreeRoutes(int size, int group) noexcept
      : size_(size), group_(group > 0 && group < size ? group : size) {}

  [[nodiscard]] bool is_star() const noexcept { return group_ == size_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// Towards rank 0; -1: this is rank 0.
  [[nodiscard]] int parent(int rank) const noexcept;
  /// Ascending.
  [[nodiscard]] std::vector<int> children(int rank) const;
  [[nodiscard]] bool is_relay(int rank) const { return rank != 0 && !children(rank).empty(); }
  /// Rank 0 reaches the ranks `child`, … up to this one, without it, through its child.
  [[nodiscard]] int end_of(int child) const noexcept;
  /// The neighbour of `rank` on the way to `other`.
  [[nodiscard]] int towards(int rank, int other) const noexcept;

 private:
  [[nodiscard]] int relay_of(int rank) const noexcept { return rank / group_ * group_; }

  int size_;
  int group_;
};

/// The ranks of a group for `Config::control_fanout`: 0 means a star up to 256 ranks, and beyond
/// that the root of their number, rounded up.
[[nodiscard]] int control_group(int size, int fanout) noexcept;

}  // namespace hvd
