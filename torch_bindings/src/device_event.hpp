// When a tensor's data is ready.
#pragma once

#include <memory>
#include <optional>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/types.h>

#include <hvd/core/request.hpp>

namespace hvd {

/// What a stream has to do until a mark in it. Goes through LibTorch's own device interface, so no
/// build needs CUDA headers for it.
class StreamEvent final : public DeviceEvent {
 public:
  /// The mark is behind what has been queued so far.
  explicit StreamEvent(c10::Stream stream);
  /// The mark moves behind what has been queued since.
  void record();
  void wait(Deadline deadline) override;
  [[nodiscard]] void* handle() const noexcept override;

 private:
  c10::Stream stream_;
  c10::Event event_;
};

/// Of the current stream of the tensor's device. Null on the CPU: ready now. Throws
/// Errc::unsupported when LibTorch was built without that device.
[[nodiscard]] std::shared_ptr<StreamEvent> record_device_event(const torch::Tensor& tensor);

/// Blocks until the current stream of the calling thread on the tensor's device has run dry.
void synchronize_stream(const torch::Tensor& tensor);

/// Memory for results whose shape the engine finds out, which its own stream writes and the program
/// reads. Made on the program's thread, used on the engine's.
class ResultMemory {
 public:
  /// For results of the same kind as `tensor`, to be used on the stream that is current now: the
  /// allocator may hand their memory out again as soon as that stream's work allows it. `ready` is
  /// an event of that stream; null on the CPU.
  ResultMemory(const torch::Tensor& tensor, std::shared_ptr<StreamEvent> ready);

  /// May be written once `ready` is over, which waits from now on for what the stream has still to
  /// do with memory that was handed back to it, too.
  [[nodiscard]] torch::Tensor empty(torch::IntArrayRef shape) const;
  /// Of another type; there when it returns.
  [[nodiscard]] torch::Tensor converted(const torch::Tensor& result, torch::ScalarType type) const;

 private:
  torch::TensorOptions options_;
  std::optional<c10::Stream> stream_;  ///< none on the CPU
  std::shared_ptr<StreamEvent> ready_;
};

}  // namespace hvd
