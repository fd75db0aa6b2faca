// Manages the device memory of fused tensors, and tells where they lie in it.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <hvd/core/internal/backend.hpp>

#include "nccl/nccl_comm.hpp"

namespace hvd::detail {

/// Owns memory of the current device for fused tensors, registered with every communicator that
/// uses it. One thread at a time may call it.
class FusionMemory {
 public:
  FusionMemory() noexcept = default;
  ~FusionMemory();
  FusionMemory(const FusionMemory&) = delete;
  FusionMemory& operator=(const FusionMemory&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Returns at least `size` bytes, registered with `comm`. Their content is lost when the memory
  /// has to grow; no work on it may be pending then.
  [[nodiscard]] std::byte* reserve(std::size_t size, const NcclComm& comm);
  /// The caller calls it before `comm` is closed.
  void deregister(const NcclComm& comm) noexcept;
  /// The caller calls it when `comm` is aborted, which ends its registration.
  void forget(const NcclComm& comm) noexcept;

 private:
  void release() noexcept;

  void* data_ = nullptr;
  std::size_t size_ = 0;
  /// The handles by communicator. A null handle remembers that NCCL did not register the memory.
  std::vector<std::pair<const NcclComm*, void*>> registrations_;
};

/// Computes the offsets of fused tensors in the fusion memory. Each tensor begins at a multiple of
/// 16 bytes, as it nearly always does in its own memory, so that copies move 16-byte words on both
/// sides. The bytes between tensors are reduced with them, and nobody reads them.
class AlignedOffsets {
 public:
  AlignedOffsets(std::span<const TensorSlice> tensors, std::size_t element) {
    tensors_.reserve(tensors.size());
    for (const TensorSlice& tensor : tensors) {
      const std::size_t bytes = static_cast<std::size_t>(tensor.count) * element;
      const std::size_t begin = (size_ + kAlignment - 1) / kAlignment * kAlignment;
      tensors_.push_back({begin, bytes});
      if (bytes > 0) size_ = begin + bytes;
    }
  }

  /// Returns the bytes up to the end of the last tensor, or for a single tensor its own bytes.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t offset(std::size_t tensor) const { return tensors_[tensor].offset; }
  [[nodiscard]] std::size_t bytes(std::size_t tensor) const { return tensors_[tensor].bytes; }

 private:
  static constexpr std::size_t kAlignment = 16;

  struct Tensor {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  std::vector<Tensor> tensors_;
  std::size_t size_ = 0;
};

}  // namespace hvd::detail
