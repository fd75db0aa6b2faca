// An owned CUDA stream of the current device.
#pragma once

#include "nccl/cuda_check.hpp"

namespace hvd {

class CudaStream {
 public:
  /// Non-blocking: it does not wait for the default stream, nor the default stream for it. Of the
  /// highest priority: what a whole job waits for goes before what only this rank computes.
  CudaStream() {
    int least = 0;
    int greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest),
          "cudaStreamCreateWithPriority");
  }
  ~CudaStream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace hvd
