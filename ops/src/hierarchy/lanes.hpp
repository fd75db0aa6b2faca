// Which rank carries which part of a tensor from host to host. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hvd {

/// What one rank has to know; see docs/hierarchy.md.
struct Lanes {
  int count = 1;                         ///< lanes of a tensor
  std::vector<int> host;                 ///< the ranks of this host, ascending
  int place = 0;                         ///< this rank among them
  std::vector<int> begin;                ///< by place: its first lane; one more: `count`
  std::vector<std::vector<int>> owners;  ///< of each lane of this rank: its ranks, ascending

  [[nodiscard]] int first() const { return begin[static_cast<std::size_t>(place)]; }
  /// Where a lane begins in a tensor of so many elements; for `lane == count` where the last ends.
  [[nodiscard]] std::int64_t offset(std::int64_t elements, int lane) const {
    // Below 2⁶³ also where elements · lane is not.
    return elements / count * lane + elements % count * lane / count;
  }
};

/// `host_of`: each rank's host, numbered by its first rank.
[[nodiscard]] Lanes plan_lanes(std::span<const int> host_of, int rank);

/// The hosts of these ascending ranks, numbered anew by their first ones.
[[nodiscard]] std::vector<int> hosts_among(std::span<const int> host_of,
                                           std::span<const int> ranks);

}  // namespace hvd
