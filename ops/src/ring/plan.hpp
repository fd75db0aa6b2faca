// A ring collective as data: the order of the ranks, and who sends which chunk in which step.
#pragma once

#include <span>
#include <vector>

namespace hvd {

/// The order of a group's ranks around a ring. The ranks of a host are next to each other, so that
/// the ring enters and leaves every host once.
struct RingOrder {
  std::vector<int> ranks;      ///< by position
  std::vector<int> positions;  ///< by rank

  /// Tells whether every rank has its own number as its position.
  [[nodiscard]] bool is_by_rank() const;
};

/// Orders ranks by their hosts' numbers, which need not be contiguous, and within a host by rank.
/// `host_of` is the host of each rank.
[[nodiscard]] RingOrder order_by_host(std::span<const int> host_of);

struct RingStep {
  int send = 0;     ///< chunk for the next rank
  int receive = 0;  ///< chunk from the previous rank
};

/// Patarasuk & Yuan 2009, section 3: n-1 steps in which partial results of every chunk travel once
/// around the ring, then n-1 in which the results do. One chunk per rank.
///
/// Chunk k sets out at rank k+1 and ends, complete, at rank k: its sum is
/// (((x[k+1] + x[k+2]) + …) + x[k]), ranks modulo n.
struct RingPlan {
  int next = 0;
  int previous = 0;
  std::vector<RingStep> reduce_scatter;  ///< received chunks are combined with this rank's own
  std::vector<RingStep> all_gather;      ///< begins with chunk `rank` complete on this rank
};

[[nodiscard]] RingPlan plan_ring(int rank, int size);

/// The same in the given order. Chunks have the numbers of the ranks that own them, and chunk k
/// sets out at the rank after rank k.
[[nodiscard]] RingPlan plan_ring(const RingOrder& order, int rank);

}  // namespace hvd
