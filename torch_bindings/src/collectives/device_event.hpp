// Detects when a tensor's data is ready on its device.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <torch/types.h>

#include <hvd/core/context.hpp>
#include <hvd/core/request.hpp>
#include <hvd/core/work.hpp>

namespace hvd::detail {

/// An event of a stream. It uses LibTorch's own device interface, so no build needs CUDA headers.
/// One thread at a time may call it.
class StreamEvent final : public DeviceEvent {
 public:
  explicit StreamEvent(c10::Stream stream);
  ~StreamEvent() override;
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  [[nodiscard]] const c10::Stream& stream() const noexcept { return stream_; }
  /// From now on the event occurs after the work that is in the stream now.
  void record();
  void wait(Deadline deadline) override;
  [[nodiscard]] void* handle() const noexcept override { return event_->eventId(); }

 private:
  c10::Stream stream_;
  std::optional<c10::Event> event_;  ///< empty only in the destructor
};

/// Throws Errc::unsupported while a CUDA graph is captured on the current stream of the tensor's
/// device. A collective needs the host in each step, and a graph that is replayed does not.
void require_no_capture(const torch::Tensor& tensor, std::string_view what);

/// Records an event of the current stream of the tensor's device. Returns null for a tensor on the
/// CPU, whose data is ready. Throws Errc::unsupported when LibTorch was built without that device,
/// or during a capture.
[[nodiscard]] std::shared_ptr<StreamEvent> record_device_event(const torch::Tensor& tensor);

/// Returns the current stream of the tensor's device, which is not the CPU.
[[nodiscard]] c10::Stream current_stream(const torch::Tensor& tensor);

/// Keeps the allocator from reusing the tensor's memory before the current stream of its device has
/// done the work that it has when the tensor is freed. It does nothing on the CPU, and without a
/// tensor.
void note_use_by_current_stream(const torch::Tensor& tensor);

/// Makes the stream of an event current, or does nothing for null.
class EventStreamGuard {
 public:
  explicit EventStreamGuard(const StreamEvent* event) {
    if (event != nullptr) guard_.reset_stream(event->stream());
  }

 private:
  c10::OptionalStreamGuard guard_;
};

/// Tells whether ranks of the job may be lost or come.
[[nodiscard]] bool is_elastic(const Context& context);

/// Tells whether a stream may wait for an operation in place of the thread. It may not with
/// HVD_STREAM_ORDERED=0, and in an elastic job, where a step counts only if its operations have
/// succeeded.
[[nodiscard]] bool may_order(const Context& context);

/// Waits for operations on tensors. Where it is possible the calling thread's current stream on the
/// tensor's device waits instead, and the thread only until the operation is launched.
class StreamWaits {
 public:
  /// If not `allowed`, the thread always waits.
  explicit StreamWaits(bool allowed) noexcept : allowed_(allowed) {}

  /// `tensor` is a result of `work`, or undefined if it has none. Throws what `Work::wait` throws.
  void wait(const Work& work, const torch::Tensor& tensor);
  /// Marks the end of a reduction. Later calls of `wait` belong to the next one.
  void end_reduction() noexcept { ends_.clear(); }
  /// Throws the error of an operation of the last reduction that has failed after its launch.
  void check() const;

 private:
  bool allowed_;
  std::vector<Work> launched_;               ///< of the reduction that ended last, or runs
  std::vector<std::shared_ptr<void>> ends_;  ///< the events for which the stream waits already
};

/// Allocates results whose shape the engine finds out. The engine's stream writes them and the
/// program's stream reads them. It is constructed on the program's thread and used on the engine's.
class ResultMemory {
 public:
  /// Results have the dtype and device of `tensor`. They belong to the stream that is current now,
  /// so the allocator reuses their memory in the order of that stream's work. `ready` is an event
  /// of that stream, or null on the CPU.
  ResultMemory(const torch::Tensor& tensor, std::shared_ptr<StreamEvent> ready);

  /// Allocates a result, which may be written once `ready` has occurred. It records `ready` anew,
  /// because the stream may still have to finish work with memory that it reuses for the result.
  [[nodiscard]] torch::Tensor empty(torch::IntArrayRef shape) const;
  /// Returns the result in another dtype, once `ready`, which it records anew, has occurred.
  [[nodiscard]] torch::Tensor converted(const torch::Tensor& result, torch::ScalarType type) const;

 private:
  torch::TensorOptions options_;
  std::shared_ptr<StreamEvent> ready_;
};

}  // namespace hvd::detail
