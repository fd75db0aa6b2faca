#include "gpu.hpp"

#include <stdexcept>

#include "nccl/cuda.hpp"

namespace hvd::bench {
namespace {

using namespace detail;

class CudaMemory final : public GpuMemory {
 public:
  CudaMemory(int gpu, std::size_t size) : gpu_(gpu) {
    const DeviceGuard guard(gpu_);
    data_ = buffer_.reserve(size);
    check(cudaMemset(data_, 0, size), "cudaMemset");
    wait();
  }
  [[nodiscard]] std::byte* data() noexcept override { return data_; }
  void put(std::byte* to, const std::byte* from, std::size_t size) override {
    const DeviceGuard guard(gpu_);
    check(cudaMemcpy(to, from, size, cudaMemcpyHostToDevice), "cudaMemcpy");
    wait();
  }
  void get(std::byte* to, const std::byte* from, std::size_t size) override {
    const DeviceGuard guard(gpu_);
    check(cudaMemcpy(to, from, size, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }

 private:
  /// The backend's stream does not wait for the default stream, on which bytes from pageable memory
  /// arrive.
  static void wait() { check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); }

  int gpu_;
  DeviceBuffer buffer_;
  std::byte* data_ = nullptr;
};

}  // namespace

int gpu_of(int local_rank) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    throw std::runtime_error("--device cuda: there is no GPU");
  }
  return local_rank % count;
}

std::unique_ptr<GpuMemory> make_gpu_memory(int gpu, std::size_t size) {
  return std::make_unique<CudaMemory>(gpu, size);
}

}  // namespace hvd::bench
