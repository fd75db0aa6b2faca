// Tensors of a test in the memory of the current device.
#pragma once

#include <vector>

#include "nccl/cuda.hpp"
#include "support/backend_checks.hpp"

namespace hvd::test {

class CudaMemory final : public TestMemory {
 public:
  CudaMemory() = default;
  ~CudaMemory() override {
    for (void* block : blocks_) static_cast<void>(cudaFree(block));
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  [[nodiscard]] std::byte* put(const Bytes& bytes) override {
    void* block = nullptr;
    detail::check(cudaMalloc(&block, bytes.empty() ? 1 : bytes.size()), "cudaMalloc");
    blocks_.push_back(block);
    if (!bytes.empty()) {
      detail::check(cudaMemcpy(block, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
                    "cudaMemcpy");
      // The bytes may arrive later, on the default stream, for which the backend's does not wait.
      detail::check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    }
    return static_cast<std::byte*>(block);
  }

  [[nodiscard]] Bytes get(const std::byte* data, std::size_t size) override {
    Bytes bytes(size);
    if (size > 0) {
      detail::check(cudaMemcpy(bytes.data(), data, size, cudaMemcpyDeviceToHost), "cudaMemcpy");
    }
    return bytes;
  }

 private:
  std::vector<void*> blocks_;
};

}  // namespace hvd::test
