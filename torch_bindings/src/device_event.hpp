// When a tensor's data is ready.
#pragma once

#include <memory>
#include <optional>

#include <c10/core/Stream.h>
#include <torch/types.h>

#include <hvd/core/request.hpp>

namespace hvd {

/// What has been queued on the current stream of the tensor's device so far. Null on the CPU: ready
/// now. Goes through LibTorch's own device interface, so no build needs CUDA headers for it.
/// Throws Errc::unsupported when LibTorch was built without that device.
[[nodiscard]] std::shared_ptr<DeviceEvent> record_device_event(const torch::Tensor& tensor);

/// Blocks until the current stream of the calling thread on the tensor's device has run dry.
void synchronize_stream(const torch::Tensor& tensor);

/// Memory for results whose shape the engine finds out, which its own stream writes and the program
/// reads. Made on the program's thread, used on the engine's.
class ResultMemory {
 public:
  /// For results of the same kind as `tensor`, to be used on the stream that is current now: the
  /// allocator may hand their memory out again as soon as that stream's work allows it.
  explicit ResultMemory(const torch::Tensor& tensor);

  /// Free to be written by any stream: what the stream had still to do with memory that was handed
  /// back to it has been done.
  [[nodiscard]] torch::Tensor empty(torch::IntArrayRef shape) const;
  /// Of another type; there when it returns.
  [[nodiscard]] torch::Tensor converted(const torch::Tensor& result, torch::ScalarType type) const;

 private:
  torch::TensorOptions options_;
  std::optional<c10::Stream> stream_;  ///< none on the CPU
};

}  // namespace hvd
