// The device memory in which fused tensors meet, known to every communicator that uses it.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "nccl/nccl_comm.hpp"

namespace hvd {

/// Of the current device. One thread at a time.
class FusionMemory {
 public:
  FusionMemory() noexcept = default;
  ~FusionMemory();
  FusionMemory(const FusionMemory&) = delete;
  FusionMemory& operator=(const FusionMemory&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// At least `size` bytes, registered with `comm`. What they held is lost when the memory has to
  /// grow; no work on them is pending then.
  [[nodiscard]] std::byte* reserve(std::size_t size, const NcclComm& comm);
  /// Before `comm` is closed.
  void deregister(const NcclComm& comm) noexcept;
  /// When `comm` is aborted, and its registration with it.
  void forget(const NcclComm& comm) noexcept;

 private:
  void release() noexcept;

  void* data_ = nullptr;
  std::size_t size_ = 0;
  /// Handles; null where NCCL did not want the memory, so as not to ask again.
  std::vector<std::pair<const NcclComm*, void*>> registrations_;
};

}  // namespace hvd
