// One thing for the executor to run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <hvd/core/types.hpp>

#include "engine/pending_tensor.hpp"

namespace hvd::detail {

struct Job {
  OpKind kind = OpKind::allreduce;
  std::int32_t process_set = 0;
  std::vector<std::shared_ptr<PendingTensor>> tensors;  ///< alike but for shape
  std::vector<std::vector<std::int64_t>> rows;          ///< see FusedBatch
  int contributors = 0;                                 ///< see FusedBatch

  // The sequence number and digest for the ready fence of a frozen schedule's turn; 0 in a
  // negotiated job.
  std::uint64_t sequence = 0;
  std::uint64_t digest = 0;

  std::vector<int> members;  ///< the ranks of the turn, or of the process set that is made
};

}  // namespace hvd::detail
