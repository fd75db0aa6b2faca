// Holds the buffers of `--device cuda`. A build without CUDA has no_gpu.cpp, which refuses them.
#pragma once

#include <cstddef>
#include <memory>

namespace hvd::bench {

/// Memory of a GPU. Its bytes are zeros at first.
class GpuMemory {
 public:
  virtual ~GpuMemory() = default;
  [[nodiscard]] virtual std::byte* data() noexcept = 0;
  /// Copies from the host. The copy is complete on return, for every stream.
  virtual void put(std::byte* to, const std::byte* from, std::size_t size) = 0;
  /// Copies to the host.
  virtual void get(std::byte* to, const std::byte* from, std::size_t size) = 0;
};

/// Returns the GPU of a rank. Throws std::runtime_error where there is none, or when this program
/// was built without CUDA.
[[nodiscard]] int gpu_of(int local_rank);

[[nodiscard]] std::unique_ptr<GpuMemory> make_gpu_memory(int gpu, std::size_t size);

}  // namespace hvd::bench
