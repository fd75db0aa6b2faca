// Multiplies device memory by a number without a kernel of our own.
#pragma once

#include <cstdint>
#include <memory>

#include <cuda_runtime_api.h>

#include "nccl/nccl_comm.hpp"

namespace hvd {

/// The sum over a single rank, with the input multiplied first, is a scaling: so a communicator of
/// this rank alone scales. Made when first needed, since most programs never do.
class NcclScaler {
 public:
  /// Queues dst = factor · src on `stream`, of the current device; `dst` may equal `src`. The
  /// factor is rounded to `type`, which is floating.
  void scale(const void* src, void* dst, std::int64_t count, ncclDataType_t type, double factor,
             cudaStream_t stream, Watch& watch);
  /// Of its communicator, for who aborts it; null when there is none.
  [[nodiscard]] ncclComm_t release() noexcept;

 private:
  std::unique_ptr<NcclComm> comm_;
};

}  // namespace hvd
