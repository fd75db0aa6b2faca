#include <dlfcn.h>

#include "nccl/cuda.hpp"

namespace hvd::detail {
namespace {

// The type of cuDevicePrimaryCtxGetState. The runtime has no such function, and it is not linked to
// the driver's library, which may be missing.
using GetState = int (*)(int device, unsigned int* flags, int* active);

GetState find_in_driver() noexcept {
  // The runtime has loaded the library if there is one.
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return nullptr;
  return reinterpret_cast<GetState>(::dlsym(driver, "cuDevicePrimaryCtxGetState"));
}

}  // namespace

bool has_primary_context(int device) noexcept {
  static const GetState get_state = find_in_driver();
  unsigned int flags = 0;
  int active = 0;
  if (get_state == nullptr || get_state(device, &flags, &active) != 0) return true;
  return active != 0;
}

}  // namespace hvd::detail
