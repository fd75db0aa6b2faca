#include "nccl/comm_aborts.hpp"

#include <exception>

#include <cuda_runtime_api.h>

namespace hvd {

void CommAborts::begin(std::span<const ncclComm_t> comms, int device) noexcept {
  for (const ncclComm_t comm : comms) {
    if (comm == nullptr) continue;
    const auto abort = [comm, device] {
      // Else it is device 0 that NCCL makes current again, with a context.
      static_cast<void>(cudaSetDevice(device));
      static_cast<void>(ncclCommAbort(comm));
    };
    try {
      running_.emplace_back();
      running_.back() = std::async(std::launch::async, abort);
    } catch (const std::exception&) {
      abort();  // there is no thread to be had
    }
  }
}

bool CommAborts::wait_until(Deadline deadline) noexcept {
  for (const std::future<void>& each : running_) {
    if (each.valid() && each.wait_until(deadline) != std::future_status::ready) return false;
  }
  return true;
}

}  // namespace hvd
