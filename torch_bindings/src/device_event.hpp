// When a tensor's data is ready.
#pragma once

#include <memory>

#include <torch/types.h>

#include <hvd/core/request.hpp>

namespace hvd {

/// What has been queued on the current stream of the tensor's device so far. Null on the CPU: ready
/// now. Goes through LibTorch's own device interface, so no build needs CUDA headers for it.
/// Throws Errc::unsupported when LibTorch was built without that device.
[[nodiscard]] std::shared_ptr<DeviceEvent> record_device_event(const torch::Tensor& tensor);

/// Blocks until the current stream of the calling thread on the tensor's device has run dry.
void synchronize_stream(const torch::Tensor& tensor);

}  // namespace hvd
