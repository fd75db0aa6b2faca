// Tells which ranks have a stream with each other on the control channel. The functions have no
// side effects.
//
//   rank 0 ─┬─ relay 1 ──┬─ relay 2 ─── 3, 4, …
//           │            └─ relay i ─── i+1, i+2, …
//           └─ relay j ─── …
#pragma once

#include <vector>

namespace hvd::detail {

/// The ranks below a rank follow it. They are divided into blocks of consecutive ranks, which
/// mostly share a host, as many as a rank may have children. The first rank of a block is a child,
/// and the rest of the block is below it. A rank other than 0 with ranks below it is a relay.
class TreeRoutes {
 public:
  /// `fanout` is a `Config::control_fanout`: how many children a rank has at most. With 0, all
  /// ranks of a job of up to 256 are children of rank 0; in a larger job rank 0 has up to 23
  /// children and a relay up to 80.
  TreeRoutes(int size, int fanout) noexcept;

  [[nodiscard]] int size() const noexcept { return size_; }
  /// Returns the neighbour on the way to rank 0, or -1 for rank 0 itself.
  [[nodiscard]] int parent(int rank) const noexcept { return find(rank).parent; }
  /// Returns the neighbours that reach rank 0 through `rank`, in ascending order.
  [[nodiscard]] std::vector<int> children(int rank) const;
  [[nodiscard]] bool is_relay(int rank) const noexcept {
    return rank != 0 && end_of(rank) > rank + 1;
  }
  /// Returns one more than the last rank below `rank`; if there is none, one more than `rank`.
  [[nodiscard]] int end_of(int rank) const noexcept { return find(rank).end; }
  /// Returns the neighbour of `rank` on the way to another rank.
  [[nodiscard]] int towards(int rank, int other) const noexcept;

 private:
  struct Place {
    int rank = 0;
    int end = 0;  // as `end_of` returns it
    int parent = -1;
  };
  [[nodiscard]] int block(const Place& place) const noexcept;
  [[nodiscard]] Place child_above(const Place& place, int rank) const noexcept;
  [[nodiscard]] Place find(int rank) const noexcept;

  int size_;
  int children_of_root_;
  int children_of_relay_;
};

}  // namespace hvd::detail
