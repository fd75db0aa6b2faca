#include "gradients/bucket_events.hpp"

#include <algorithm>

namespace hvd::detail {

std::shared_ptr<StreamEvent> BucketEvents::on(const c10::Stream& stream) {
  const auto is_of_stream = [&](const auto& event) { return event->stream() == stream; };
  const auto recorded = std::find_if(of_bucket_.begin(), of_bucket_.end(), is_of_stream);
  if (recorded != of_bucket_.end()) return *recorded;
  const auto unused = std::find_if(all_.begin(), all_.end(), [&](const auto& event) {
    return event.use_count() == 1 && is_of_stream(event);
  });
  const auto event =
      unused != all_.end() ? *unused : all_.emplace_back(std::make_shared<StreamEvent>(stream));
  event->record();
  return of_bucket_.emplace_back(event);
}

}  // namespace hvd::detail
