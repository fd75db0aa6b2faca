// How a group's ranks follow each other around a ring.
#pragma once

#include <span>
#include <vector>

namespace hvd {

/// The ranks of a host stand next to each other, so that a ring enters and leaves every host once
/// whatever ranks it has.
struct RingOrder {
  std::vector<int> ranks;      ///< by position
  std::vector<int> positions;  ///< by rank

  /// Whether every rank stands at the position of its number.
  [[nodiscard]] bool is_by_rank() const;
};

/// Hosts by their numbers, which need not begin at 0 nor follow each other; the ranks of one
/// ascending. `host_of`: the host of each rank.
[[nodiscard]] RingOrder order_by_host(std::span<const int> host_of);

}  // namespace hvd
