#include <stdexcept>

#include "gpu.hpp"

namespace hvd::bench {

int gpu_of(int) {
  throw std::runtime_error("--device cuda: hvd_bench was built without CUDA and NCCL");
}

std::unique_ptr<GpuMemory> make_gpu_memory(int, std::size_t) { return nullptr; }

}  // namespace hvd::bench
