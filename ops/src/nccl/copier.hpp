// Moves the pieces of a fused operation, within a device's memory or between it and pinned memory.
#pragma once

#include <memory>
#include <span>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <hvd/core/types.hpp>

#include "polling/watch.hpp"

namespace hvd {

/// Pieces of one `run` do not overlap, but `dst` may equal `src`.
struct DeviceCopy {
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;  ///< null: the identity element is written
  std::size_t size = 0;            ///< bytes
};

/// What happens to every element on its way.
struct Treatment {
  DType dtype = DType::u8;
  ReduceOp identity_of = ReduceOp::sum;  ///< where there is no source
  double factor = 1.0;                   ///< of what has a source; only of a type that `scales`
};

/// Used by one thread at a time, with its device the current one.
class Copier {
 public:
  virtual ~Copier() = default;
  /// Whether elements of this type can be multiplied on their way.
  [[nodiscard]] virtual bool scales(DType dtype) const noexcept = 0;
  /// Whether the factor is kept as precise as the contract asks, and costs no pass of its own.
  [[nodiscard]] virtual bool scales_for_free() const noexcept = 0;
  /// Queues the copies on `stream`; `copies` may go when it returns.
  virtual void run(std::span<const DeviceCopy> copies, const Treatment& treatment,
                   cudaStream_t stream, Watch& watch) = 0;
  /// The communicator that it copies with, to be aborted by the caller, if it has one; after that
  /// it copies no more.
  [[nodiscard]] virtual ncclComm_t release() noexcept { return nullptr; }
};

/// One kernel for up to `CopyTable::kMaxParts` copies. Null where the build had no nvcc
/// (no_copy_kernel.cpp).
[[nodiscard]] std::unique_ptr<Copier> make_kernel_copier();

/// CUDA's own copies, one after the other; scales floating point by a reduction of NCCL.
[[nodiscard]] std::unique_ptr<Copier> make_plain_copier();

}  // namespace hvd
