#include "nccl/fusion_memory.hpp"

#include <algorithm>

#include "nccl/cuda.hpp"
#include "nccl/nccl_features.hpp"

namespace hvd::detail {

FusionMemory::~FusionMemory() { release(); }

std::byte* FusionMemory::reserve(std::size_t size, const NcclComm& comm) {
  if (size > size_) {
    release();
    const std::size_t room = grown_size(size);
    data_ = nccl_allocate(room);
    size_ = room;
  }
  const bool known = std::any_of(registrations_.begin(), registrations_.end(),
                                 [&](const auto& each) { return each.first == &comm; });
  if (!known) registrations_.emplace_back(&comm, nccl_register(comm.get(), data_, size_));
  return static_cast<std::byte*>(data_);
}

void FusionMemory::deregister(const NcclComm& comm) noexcept {
  for (const auto& [owner, handle] : registrations_) {
    if (owner == &comm && handle != nullptr) nccl_deregister(comm.get(), handle);
  }
  forget(comm);
}

void FusionMemory::forget(const NcclComm& comm) noexcept {
  registrations_.erase(std::remove_if(registrations_.begin(), registrations_.end(),
                                      [&](const auto& each) { return each.first == &comm; }),
                       registrations_.end());
}

void FusionMemory::release() noexcept {
  while (!registrations_.empty()) deregister(*registrations_.back().first);
  if (data_ != nullptr) nccl_free(data_);
  data_ = nullptr;
  size_ = 0;
}

}  // namespace hvd::detail
