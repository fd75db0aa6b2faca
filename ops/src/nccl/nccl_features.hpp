// What NCCL can from 2.19 on. With an older one no_nccl_features.cpp stands in: device memory is
// CUDA's, nothing is registered, and communicators are not split.
#pragma once

#include <cstddef>

#include <nccl.h>

namespace hvd {

/// Memory of the current device that every way of NCCL can use directly. Throws Errc::resource.
[[nodiscard]] void* nccl_allocate(std::size_t size);
void nccl_free(void* data) noexcept;

/// A communicator's handle of memory that it may hand to the network or to other GPUs; null when
/// NCCL does not want it. The memory stays until it is deregistered or the communicator is aborted.
[[nodiscard]] void* nccl_register(ncclComm_t comm, void* data, std::size_t size) noexcept;
void nccl_deregister(ncclComm_t comm, void* handle) noexcept;

[[nodiscard]] bool nccl_can_split() noexcept;
/// Non-blocking, as ncclCommInitRankConfig. A rank that is no `member` gets no `child`.
[[nodiscard]] ncclResult_t nccl_split(ncclComm_t parent, bool member, int key, ncclComm_t* child);

}  // namespace hvd
