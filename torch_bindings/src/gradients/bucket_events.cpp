#include "gradients/bucket_events.hpp"

#include <algorithm>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace hvd::detail {

std::shared_ptr<StreamEvent> BucketEvents::after(const torch::Tensor& gradient,
                                                 bool is_last_of_bucket) {
  if (gradient.is_cpu()) return nullptr;
  if (!gradient.is_cuda()) return record_device_event(gradient);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(gradient.device());
  const auto at = std::find_if(open_.begin(), open_.end(),
                               [&](const auto& event) { return event->stream() == stream; });
  std::shared_ptr<StreamEvent> event;
  if (at != open_.end()) {
    if ((*at)->extend()) event = *at;
    if (!event || is_last_of_bucket) open_.erase(at);
  }
  if (!event) {
    event = take(stream);
    if (!is_last_of_bucket) open_.push_back(event);
  }
  if (is_last_of_bucket) event->record();
  return event;
}

/// Returns an event of the stream that nobody uses.
std::shared_ptr<StreamEvent> BucketEvents::take(const c10::Stream& stream) {
  const auto at = std::find_if(all_.begin(), all_.end(), [&](const auto& event) {
    return event.use_count() == 1 && event->stream() == stream;
  });
  if (at == all_.end()) return all_.emplace_back(std::make_shared<StreamEvent>(stream));
  (*at)->renew();
  return *at;
}

}  // namespace hvd::detail
