#include "collectives/device_event.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/ops/internal/capture.hpp>

namespace hvd::detail {

namespace {

/// LibTorch has told CUDA's handle of a stream since 2.11. With an older one a capture goes
/// unnoticed.
template <class Device>
bool is_captured(const Device& device, const c10::Stream& stream) {
  if constexpr (requires { device.getStreamNativeHandle(stream); }) {
    return is_capturing(device.getStreamNativeHandle(stream));
  } else {
    return false;
  }
}

/// Tells whether the memory of a tensor on a GPU comes from LibTorch's allocator. Also true if this
/// cannot be told, because the allocator has no deleter by which its memory is recognised.
bool is_of_allocator(const torch::Tensor& tensor) {
  static const c10::Allocator* const allocator =
      torch::empty({0}, tensor.options()).storage().allocator();
  const c10::DeleterFnPtr deleter = allocator->raw_deleter();  // LibTorch may switch caching off
  return deleter == nullptr || tensor.storage().data_ptr().get_deleter() == deleter;
}

}  // namespace

// LibTorch records and destroys an event on its device, and afterwards makes the thread's previous
// device current again. That would allocate memory for a context on a device that the process does
// not use, so the event's device is the thread's already meanwhile. A DeviceGuard does not
// allocate.
StreamEvent::StreamEvent(c10::Stream stream) : stream_(stream), event_(stream.device_type()) {}

StreamEvent::~StreamEvent() {
  try {
    const c10::DeviceGuard guard(stream_.device());
    event_.reset();
  } catch (...) {
    // A device that has failed cannot become current. Without a guard the event's own destructor
    // reports errors of CUDA as warnings, and throws none.
  }
}

void StreamEvent::record() {
  const c10::DeviceGuard guard(stream_.device());
  event_->record(stream_);
}

// LibTorch's events have no wait with a deadline, so this queries the event again and again and
// yields the processor in between.
void StreamEvent::wait(Deadline deadline) {
  const CaptureModeGuard other_threads_may_capture;
  while (!event_->query()) {
    if (Clock::now() >= deadline) {
      throw Error(Errc::timeout, "the device had not done its work in time");
    }
    std::this_thread::yield();
  }
}

void require_no_capture(const torch::Tensor& tensor, std::string_view what) {
  if (!tensor.is_cuda()) return;
  // The handle of every default stream is null, and CUDA takes null for that of the current device.
  // To ask about it makes a context there, so the tensor's device must be current.
  const c10::DeviceGuard guard(tensor.device());
  const c10::impl::VirtualGuardImpl device(tensor.device().type());
  if (!is_captured(device, device.getStream(tensor.device()))) return;
  throw Error(Errc::unsupported,
              fmt::format("{} cannot be part of a CUDA graph, because the ranks agree on the host "
                          "in each step; capture without it, for example under no_sync()",
                          what));
}

std::shared_ptr<StreamEvent> record_device_event(const torch::Tensor& tensor) {
  if (tensor.is_cpu()) return nullptr;
  const c10::Device device = tensor.device();
  try {
    require_no_capture(tensor, "a collective");
    auto event =
        std::make_shared<StreamEvent>(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    event->record();
    return event;
  } catch (const c10::Error& error) {
    throw Error(Errc::unsupported, "LibTorch cannot record an event on " + tensor.device().str() +
                                       ": " + error.what_without_backtrace());
  }
}

c10::Stream current_stream(const torch::Tensor& tensor) {
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

void note_use_by_current_stream(const torch::Tensor& tensor) {
  // With cudaMallocAsync LibTorch's allocator refuses memory that it has not given.
  if (!tensor.defined() || tensor.is_cpu() || !is_of_allocator(tensor)) return;
  c10::impl::VirtualGuardImpl(tensor.device().type())
      .recordDataPtrOnStream(tensor.storage().data_ptr(), current_stream(tensor));
}

bool is_elastic(const Context& context) { return context.config().interrupt_fd >= 0; }

bool may_order(const Context& context) {
  return context.config().stream_ordered && !is_elastic(context);
}

void StreamWaits::wait(const Work& work, const torch::Tensor& tensor) {
  if (ends_.empty()) launched_.clear();
  std::shared_ptr<void> end;
  if (allowed_) {
    end = work.wait_launched();
  } else {
    work.wait();
  }
  if (end) launched_.push_back(work);
  // The current stream goes on with the tensor, whoever has waited.
  note_use_by_current_stream(tensor);
  if (!end) return;
  if (std::find(ends_.begin(), ends_.end(), end) != ends_.end()) return;
  const c10::DeviceGuard guard(tensor.device());
  c10::impl::VirtualGuardImpl(tensor.device().type()).block(end.get(), current_stream(tensor));
  ends_.push_back(std::move(end));
}

void StreamWaits::check() const {
  for (const Work& work : launched_) {
    if (work.error()) work.wait();
  }
}

ResultMemory::ResultMemory(const torch::Tensor& tensor, std::shared_ptr<StreamEvent> ready)
    : options_(tensor.options()), ready_(std::move(ready)) {}

torch::Tensor ResultMemory::empty(torch::IntArrayRef shape) const {
  const EventStreamGuard guard(ready_.get());
  torch::Tensor result = torch::empty(shape, options_);
  if (ready_) ready_->record();
  return result;
}

torch::Tensor ResultMemory::converted(const torch::Tensor& result, torch::ScalarType type) const {
  const EventStreamGuard guard(ready_.get());
  torch::Tensor converted = result.to(type);
  if (ready_) ready_->record();
  return converted;
}

}  // namespace hvd::detail
