// Collects what a context reports about itself: counters, step times and the timeline.
#pragma once

#include <atomic>
#include <cstdint>

#include <hvd/core/internal/timeline.hpp>
#include <hvd/core/stats.hpp>

#include "engine/counters.hpp"
#include "engine/local_batch.hpp"
#include "observe/step_meter.hpp"
#include "policy/straggler.hpp"

namespace hvd::detail {

/// Returns the size of an operation's input on this rank. Kinds without data have none, whatever
/// their shape holds.
[[nodiscard]] std::uint64_t input_bytes(const Request& request);

/// Any thread may call it.
class Observer {
 public:
  explicit Observer(TimelineOptions options) : timeline(std::move(options)) {}

  [[nodiscard]] Stats stats() const { return meter.fill(counted()); }
  /// Ends a step, unless the program ends its steps with `step_done`.
  void mark_step(Clock::time_point now) {
    if (!program_ends_steps_.load(std::memory_order_relaxed)) end_step(now);
  }
  void step_done(Clock::time_point now) {
    program_ends_steps_.store(true, std::memory_order_relaxed);
    end_step(now);
  }
  /// Returns how long `rank`, which is this one, was blocked in its last steps, once there are
  /// enough of them.
  [[nodiscard]] BlockedTimes blocked_times(int rank) const;
  /// Records that an operation has left the negotiation, or that its place in the frozen schedule
  /// was reached.
  void scheduled(PendingTensor& tensor, bool negotiated, Clock::time_point now);
  /// Records that one phase of every tensor of a batch is over.
  void phase(const LocalBatch& batch, std::string_view name, Clock::time_point begin,
             Clock::time_point end, std::string_view algorithm = {});
  /// Records that the batch has left the queue and begins.
  void dequeued(const LocalBatch& batch, Clock::time_point now);

  Counters counters;
  observe::StepMeter meter;
  Timeline timeline;

 private:
  [[nodiscard]] Stats counted() const;
  void end_step(Clock::time_point now) {
    timeline.mark("step", now);
    meter.step(now, counted());
  }

  std::atomic<bool> program_ends_steps_{false};
};

}  // namespace hvd::detail
