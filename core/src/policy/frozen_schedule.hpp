// Holds the collectives of one cycle of a schedule that all ranks repeat without negotiation, in
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <hvd/core/request.hpp>

namespace hvd::detail {

struct PlannedBatch {
  std::int32_t process_set = 0;
  std::vector<int> members;       ///< ranks in the context, ascending; empty: all
  std::vector<Request> requests;  ///< an allgather's first dimension is that of the first member
  std::vector<std::vector<std::int64_t>> rows;  ///< allgather: per request, of each member

  friend bool operator==(const PlannedBatch&, const PlannedBatch&) = default;
};

struct FrozenSchedule {
  std::vector<PlannedBatch> batches;

  friend bool operator==(const FrozenSchedule&, const FrozenSchedule&) = default;
};

/// Returns the FNV-1a hash of the plan's canonical encoding. It is equal on every rank, and
/// different for different plans but for chance.
[[nodiscard]] std::uint64_t digest_of(const FrozenSchedule& plan);

/// Returns the index of `rank` among the members of a batch; -1 when it is none of them.
[[nodiscard]] int member_index(int rank, const PlannedBatch& batch) noexcept;

}  // namespace hvd::detail
