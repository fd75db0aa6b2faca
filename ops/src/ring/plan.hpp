// Plans a ring collective: the order of the ranks, and which chunk a rank sends and receives in
// each step.
#pragma once

#include <span>
#include <vector>

namespace hvd::detail {

/// Describes the order of a group's ranks around a ring. The ranks of a host are next to each
/// other, so that the ring enters and leaves every host once.
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

/// Describes the ring of Patarasuk & Yuan 2009, section 3, with one chunk per rank: in n-1 steps
/// the partial sums of every chunk pass once around the ring, and in n-1 more steps the complete
/// sums do.
///
/// Rank k+1 sends chunk k first and rank k receives it last, complete: the sum is
/// (((x[k+1] + x[k+2]) + …) + x[k]), with ranks modulo n.
struct RingPlan {
  int next = 0;
  int previous = 0;
  std::vector<RingStep> reduce_scatter;  ///< received chunks are combined with this rank's own
  std::vector<RingStep> all_gather;      ///< begins with chunk `rank` complete on this rank
};

[[nodiscard]] RingPlan plan_ring(int rank, int size);

/// Returns the plan of `rank` in a ring of the given order. Chunks have the numbers of the ranks
/// that own them, and the rank after rank k in that order sends chunk k first.
[[nodiscard]] RingPlan plan_ring(const RingOrder& order, int rank);

}  // namespace hvd::detail
