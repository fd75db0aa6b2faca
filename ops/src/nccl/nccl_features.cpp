#include "nccl/nccl_features.hpp"

#include <fmt/format.h>

#include <hvd/core/error.hpp>

#include "nccl/cuda.hpp"

namespace hvd::detail {

void* nccl_allocate(std::size_t size) {
  void* data = nullptr;
  const ncclResult_t result = ncclMemAlloc(&data, size);
  if (result == ncclSuccess) return data;
  check(lasting_error(), "ncclMemAlloc");  // NCCL reports every error of CUDA alike
  throw Error(result == ncclUnhandledCudaError ? Errc::resource : Errc::internal,
              fmt::format("ncclMemAlloc of {} bytes: {}", size, ncclGetErrorString(result)));
}

void nccl_free(void* data) noexcept { static_cast<void>(ncclMemFree(data)); }

void* nccl_register(ncclComm_t comm, void* data, std::size_t size) noexcept {
  void* handle = nullptr;
  return ncclCommRegister(comm, data, size, &handle) == ncclSuccess ? handle : nullptr;
}

void nccl_deregister(ncclComm_t comm, void* handle) noexcept {
  static_cast<void>(ncclCommDeregister(comm, handle));
}

bool nccl_can_register() noexcept { return true; }

}  // namespace hvd::detail
