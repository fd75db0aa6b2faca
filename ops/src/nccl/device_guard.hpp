// Makes a device the current one of this thread for a while.
#pragma once

#include "nccl/cuda_check.hpp"
#include "nccl/primary_context.hpp"

namespace hvd {

/// Afterwards the one before is current again, unless this process does not use that one: a thread
/// that has chosen none has device 0, and making that current would, from CUDA 12 on, take some
/// hundred MB of it for a context that nobody wants. Such a thread keeps `device`.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) : device_(device) {
    check(cudaGetDevice(&previous_), "cudaGetDevice");
    if (previous_ != device_) check(cudaSetDevice(device_), "cudaSetDevice");
  }
  ~DeviceGuard() {
    if (previous_ == device_ || !has_primary_context(previous_)) return;
    static_cast<void>(cudaSetDevice(previous_));
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int device_;
  int previous_ = 0;
};

}  // namespace hvd
