// Replaces nccl_features.cpp where NCCL is older than 2.19.
#include "nccl/cuda.hpp"
#include "nccl/nccl_features.hpp"

namespace hvd::detail {

void* nccl_allocate(std::size_t size) { return allocate_device(size); }

void nccl_free(void* data) noexcept { static_cast<void>(cudaFree(data)); }

void* nccl_register(ncclComm_t, void*, std::size_t) noexcept { return nullptr; }

void nccl_deregister(ncclComm_t, void*) noexcept {}

bool nccl_can_register() noexcept { return false; }

}  // namespace hvd::detail
