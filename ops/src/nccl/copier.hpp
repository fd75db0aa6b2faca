// Copies the pieces of a fused operation, within a device's memory or between it and pinned memory.
#pragma once

#include <memory>
#include <span>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <hvd/core/types.hpp>

#include "polling/watch.hpp"

namespace hvd::detail {

/// Describes a copy. The copies of one `run` do not overlap, but `dst` may equal `src`.
struct DeviceCopy {
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;  ///< null stores the identity element
  std::size_t size = 0;            ///< bytes of elements of `ElementOp::dtype`
};

/// Describes the operation on every element that is copied.
struct ElementOp {
  DType dtype = DType::u8;
  ReduceOp identity_of =
      ReduceOp::sum;    ///< the operation whose identity is stored without a source
  double factor = 1.0;  ///< multiplies elements with a source; needs a type that `scales`
  // One side may hold f32 in place of `dtype`, which is then f16 or bf16. Elements are rounded to
  // `dtype` before they are multiplied, and after it.
  bool f32_source = false;
  bool f32_destination = false;

  [[nodiscard]] bool converts() const noexcept { return f32_source || f32_destination; }
};

/// One thread at a time uses it, with its device current.
class Copier {
 public:
  virtual ~Copier() = default;
  /// Loads on the current device what `run` needs, before any work is queued there. Throws
  /// Errc::unsupported when this build has no code for that GPU.
  virtual void load() {}
  /// Tells whether elements of this type can be multiplied while they are copied.
  [[nodiscard]] virtual bool scales(DType dtype) const noexcept = 0;
  /// Tells whether the factor has the precision of the contract and costs no pass of its own.
  [[nodiscard]] virtual bool scales_for_free() const noexcept = 0;
  /// Tells whether `run` would start NCCL for this operation. If so, the caller must first complete
  /// what is queued, which may wait for other ranks.
  [[nodiscard]] virtual bool must_start(const ElementOp&) const noexcept { return false; }
  /// Queues the copies on `stream`. `copies` may be destroyed when it returns. Throws
  /// Errc::unsupported where a build without nvcc would have to convert.
  virtual void run(std::span<const DeviceCopy> copies, const ElementOp& element_op,
                   cudaStream_t stream, Watch& watch) = 0;
  /// Gives up the communicator with which it copies, if it has one, so that the caller may abort
  /// it. After that the copier makes no more copies.
  [[nodiscard]] virtual ncclComm_t release() noexcept { return nullptr; }
};

/// Makes a copier that runs one kernel for up to `CopyTable::kMaxParts` copies. Returns null in a
/// build without nvcc (no_copy_kernel.cpp).
[[nodiscard]] std::unique_ptr<Copier> make_kernel_copier();

/// Makes a copier that uses CUDA's own copies, one after the other, and scales floating point by a
/// reduction of NCCL.
[[nodiscard]] std::unique_ptr<Copier> make_plain_copier();

}  // namespace hvd::detail
