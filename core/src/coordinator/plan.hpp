// A schedule that is repeated: the collectives of one cycle, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <hvd/core/request.hpp>

namespace hvd {

struct PlannedBatch {
  std::int32_t process_set = 0;
  std::vector<int> members;       ///< ranks in the context, ascending; empty: all
  std::vector<Request> requests;  ///< an allgather's first dimension is that of the first member
  std::vector<std::vector<std::int64_t>> rows;  ///< allgather: per request, of each member

  friend bool operator==(const PlannedBatch&, const PlannedBatch&) = default;
};

struct Plan {
  std::vector<PlannedBatch> batches;

  friend bool operator==(const Plan&, const Plan&) = default;
};

/// A fingerprint that is the same on every rank and for equal plans only, but for chance.
/// Algorithm: FNV-1a over the canonical encoding.
[[nodiscard]] std::uint64_t digest_of(const Plan& plan);

/// `rank`'s place among the members of a batch; -1 when it is none of them.
[[nodiscard]] int place_of(int rank, const PlannedBatch& batch) noexcept;

}  // namespace hvd
