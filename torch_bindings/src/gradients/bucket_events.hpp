// Provides the events behind which the gradients of a bucket are ready.
#pragma once

#include <memory>
#include <vector>

#include <c10/core/Stream.h>

#include "collectives/device_event.hpp"

namespace hvd::detail {

/// Records one event for each stream on which gradients of a bucket were produced. Events are used
/// again, since making one costs more than recording it. One thread at a time calls it.
class BucketEvents {
 public:
  /// Begins a bucket. All its gradients have been produced.
  void begin() noexcept { of_bucket_.clear(); }
  /// Returns the event behind which the bucket's gradients of this stream are ready.
  [[nodiscard]] std::shared_ptr<StreamEvent> on(const c10::Stream& stream);

 private:
  std::vector<std::shared_ptr<StreamEvent>> of_bucket_;
  std::vector<std::shared_ptr<StreamEvent>> all_;
};

}  // namespace hvd::detail
