// The fake launch of copy_kernel.cu. It runs every thread of every block on the stream's thread.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fake_gpu/device_memory.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "fake_gpu/runtime.hpp"
#include "nccl/copy_table.hpp"

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test
namespace fake = test::fake_gpu;

cudaError_t misuse(const std::string& what) {
  fake::violate("the copy kernel " + what);
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t detail::load_copies() {
  const int device = fake::used_device();
  if (fake::runtime().is_broken(device)) return cudaErrorIllegalAddress;
  return fake::runtime().load_kernel(device) ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

std::vector<int> detail::copy_architectures() { return {750, 800, 1200}; }

cudaError_t detail::launch_copies(const CopyTable& table, cudaStream_t handle) {
  fake::note("launch_copies");
  const std::shared_ptr<fake::Stream> stream = fake::runtime().stream(handle);
  if (!stream || stream->device() != fake::current_device()) {
    return misuse("on a stream of another device");
  }
  if (fake::runtime().is_broken(stream->device())) return cudaErrorIllegalAddress;
  if (!fake::runtime().has_kernel(stream->device())) return misuse("that was not loaded before");
  std::map<const std::byte*, const std::byte*> written;  // begin and end
  for (std::uint32_t i = 0; i < table.parts; ++i) {
    std::byte* const dst = table.dst[i];
    const std::byte* const src = table.src[i];
    const std::size_t size = table.dst_is_half ? table.size[i] / 2 : table.size[i];
    const std::size_t src_size = table.src_is_half ? table.size[i] / 2 : table.size[i];
    const auto inside = [&](const std::byte* data, std::size_t bytes) {
      return fake::device_memory().contains(data, bytes, stream->device()) ||
             fake::device_memory().contains(data, bytes, fake::kPinned);
    };
    if (!inside(dst, size) || (src != nullptr && !inside(src, src_size))) {
      return misuse("outside the memory of the stream's device");
    }
    const auto next = written.lower_bound(dst);
    if ((next != written.end() && next->first < dst + size) ||
        (next != written.begin() && std::prev(next)->second > dst)) {
      return misuse("writes some bytes twice");
    }
    written.emplace(dst, dst + size);
    fake::note_copy(dst, src, size);
  }
  stream->push([table] {
    // Runs backwards, because no code may depend on the order of threads.
    for (std::uint32_t tile = table.tiles; tile-- > 0;) {
      for (std::uint32_t thread = kCopyThreads; thread-- > 0;) copy_tile(table, tile, thread);
    }
  });
  return cudaSuccess;
}

}  // namespace hvd
