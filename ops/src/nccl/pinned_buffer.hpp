// Owned host memory that the GPU reads and writes itself.
#pragma once

#include <cstddef>

#include "nccl/cuda_check.hpp"
#include "nccl/grown_size.hpp"

namespace hvd {

class PinnedBuffer {
 public:
  PinnedBuffer() noexcept = default;
  ~PinnedBuffer() { release(); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  /// At least `size` bytes; what they held is lost when the buffer has to grow. No work on the
  /// buffer may be pending. Throws Errc::resource.
  [[nodiscard]] std::byte* reserve(std::size_t size) {
    if (size > size_) {
      release();
      const std::size_t room = grown_size(size);
      void* data = nullptr;
      check(cudaHostAlloc(&data, room, cudaHostAllocPortable), "cudaHostAlloc");
      data_ = static_cast<std::byte*>(data);
      size_ = room;
    }
    return data_;
  }

 private:
  void release() noexcept {
    if (data_ != nullptr) static_cast<void>(cudaFreeHost(data_));
    data_ = nullptr;
    size_ = 0;
  }

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hvd
