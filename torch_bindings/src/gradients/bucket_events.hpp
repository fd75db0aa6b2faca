// Provides the events behind which the gradients of a backward pass are ready.
#pragma once

#include <memory>
#include <vector>

#include <torch/types.h>

#include "collectives/device_event.hpp"

namespace hvd::detail {

/// Gradients of one stream share an event as long as nobody waits for it. It is recorded once,
/// behind the gradient that is expected to be the last of its bucket; if the expectation is wrong,
/// whoever waits for the event records it. Events are used again, since making one costs more than
/// recording it. One thread at a time calls it.
class BucketEvents {
 public:
  /// Returns the event behind which a gradient is ready that the current stream of its device has
  /// just produced. Returns null on the CPU. Throws as `record_device_event` does.
  [[nodiscard]] std::shared_ptr<StreamEvent> after(const torch::Tensor& gradient,
                                                   bool is_last_of_bucket);

 private:
  [[nodiscard]] std::shared_ptr<StreamEvent> take(const c10::Stream& stream);

  std::vector<std::shared_ptr<StreamEvent>> open_;  ///< at most one of each stream
  std::vector<std::shared_ptr<StreamEvent>> all_;
};

}  // namespace hvd::detail
