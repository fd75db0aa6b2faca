// An owned NCCL reduce operation: the sum of inputs that were each multiplied by a factor.
#pragma once

#include <nccl.h>

#include "nccl/nccl_comm.hpp"

namespace hvd {

/// Whether a factor stays what it is in a floating-point type; of f32, as its arithmetic keeps it.
[[nodiscard]] bool is_exact(ncclDataType_t type, double factor);

class PremulSum {
 public:
  /// `type` is floating; the factor is rounded to it. `comm` outlives the operation, which must
  /// live until the calls that use it have settled.
  PremulSum(NcclComm& comm, ncclDataType_t type, double factor, Watch& watch);
  ~PremulSum();
  PremulSum(const PremulSum&) = delete;
  PremulSum& operator=(const PremulSum&) = delete;

  [[nodiscard]] ncclRedOp_t get() const noexcept { return op_; }

 private:
  NcclComm* comm_;
  ncclRedOp_t op_ = ncclSum;
};

}  // namespace hvd
