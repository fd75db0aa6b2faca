// Declares the functions of NCCL since 2.19. With an older NCCL, no_nccl_features.cpp takes device
// memory from CUDA and registers nothing.
#pragma once

#include <cstddef>

#include <nccl.h>

namespace hvd::detail {

/// Returns memory of the current device that all transports of NCCL can use directly. Throws
/// Errc::resource when there is not enough, and Errc::internal for other errors.
[[nodiscard]] void* nccl_allocate(std::size_t size);
void nccl_free(void* data) noexcept;

/// Registers memory with a communicator, which may then give it to the network or to other GPUs.
/// Returns the handle, or null when NCCL refuses. The memory stays until it is deregistered or the
/// communicator is aborted.
[[nodiscard]] void* nccl_register(ncclComm_t comm, void* data, std::size_t size) noexcept;
void nccl_deregister(ncclComm_t comm, void* handle) noexcept;

[[nodiscard]] bool nccl_can_register() noexcept;

}  // namespace hvd::detail
