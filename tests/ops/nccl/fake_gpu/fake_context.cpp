// In place of the driver: which devices of the fake have a context.
#include "fake_gpu/fake_gpu.hpp"
#include "nccl/cuda.hpp"

namespace hvd {

bool detail::has_primary_context(int device) noexcept {
  return test::fake_gpu::contexts().count(device) > 0;
}

}  // namespace hvd
