#include "device_event.hpp"

#include <thread>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <hvd/core/error.hpp>

namespace hvd {

namespace {

class StreamEvent final : public DeviceEvent {
 public:
  explicit StreamEvent(c10::Device device) : event_(device.type()) {
    event_.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }

  // A stream's event has no wait with a deadline; it is queried, and the core given away between.
  void wait(Deadline deadline) override {
    while (!event_.query()) {
      if (Clock::now() >= deadline) {
        throw Error(Errc::timeout, "the device had not produced the input in time");
      }
      std::this_thread::yield();
    }
  }

  [[nodiscard]] void* handle() const noexcept override { return event_.eventId(); }

 private:
  c10::Event event_;
};

}  // namespace

std::shared_ptr<DeviceEvent> record_device_event(const torch::Tensor& tensor) {
  if (tensor.is_cpu()) return nullptr;
  try {
    return std::make_shared<StreamEvent>(tensor.device());
  } catch (const c10::Error& error) {
    throw Error(Errc::unsupported, "LibTorch cannot record an event on " + tensor.device().str() +
                                       ": " + error.what_without_backtrace());
  }
}

void synchronize_stream(const torch::Tensor& tensor) {
  if (tensor.is_cpu()) return;
  const c10::impl::VirtualGuardImpl device(tensor.device().type());
  device.synchronizeStream(device.getStream(tensor.device()));
}

ResultMemory::ResultMemory(const torch::Tensor& tensor) : options_(tensor.options()) {
  if (tensor.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

torch::Tensor ResultMemory::empty(torch::IntArrayRef shape) const {
  c10::OptionalStreamGuard guard;
  if (stream_) guard.reset_stream(*stream_);
  torch::Tensor result = torch::empty(shape, options_);
  synchronize_stream(result);
  return result;
}

torch::Tensor ResultMemory::converted(const torch::Tensor& result, torch::ScalarType type) const {
  c10::OptionalStreamGuard guard;
  if (stream_) guard.reset_stream(*stream_);
  torch::Tensor converted = result.to(type);
  synchronize_stream(converted);
  return converted;
}

}  // namespace hvd
