// Owned memory of the current device.
#pragma once

#include <cstddef>

#include "nccl/cuda_check.hpp"

namespace hvd {

class DeviceBuffer {
 public:
  DeviceBuffer() noexcept = default;
  ~DeviceBuffer() { release(); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// At least `size` bytes; what they held is lost when the buffer has to grow. No work on the
  /// buffer may be pending.
  [[nodiscard]] std::byte* reserve(std::size_t size) {
    if (size > size_) {
      release();
      void* data = nullptr;
      check(cudaMalloc(&data, size), "cudaMalloc");
      data_ = static_cast<std::byte*>(data);
      size_ = size;
    }
    return data_;
  }

 private:
  void release() noexcept {
    if (data_ != nullptr) static_cast<void>(cudaFree(data_));
    data_ = nullptr;
    size_ = 0;
  }

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace hvd
