// Holds the tensors of this rank that one call of a backend reduces or moves together.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <hvd/core/types.hpp>

#include "engine/pending_tensor.hpp"

namespace hvd::detail {

/// Describes a collective as the executor runs it. Rank 0 decides on it (FusedBatch), or the frozen
/// schedule holds it (PlannedBatch). A batch that makes or removes a process set has no tensor on
/// ranks that have joined.
struct LocalBatch {
  OpKind kind = OpKind::allreduce;
  std::int32_t process_set = 0;
  std::vector<std::shared_ptr<PendingTensor>> tensors;  ///< equal but for their shapes
  std::vector<std::vector<std::int64_t>> rows;          ///< see FusedBatch
  int contributors = 0;                                 ///< see FusedBatch

  // The sequence number and digest for the ready fence of a frozen schedule's turn; 0 in a
  // negotiated batch.
  std::uint64_t sequence = 0;
  std::uint64_t digest = 0;

  std::vector<int> members;  ///< the ranks of the turn, or of the process set that is made
};

}  // namespace hvd::detail
