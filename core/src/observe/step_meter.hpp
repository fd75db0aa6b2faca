// Where the time of a step goes: what the coordinator feeds and `Stats` shows.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include <hvd/core/stats.hpp>
#include <hvd/core/types.hpp>

#include "observe/interval_union.hpp"

namespace hvd::observe {

/// Any thread, but for the destructor. Feeding costs a relaxed addition or a short lock.
///
/// Everything is a total that grows; a step is the difference of two readings. So nothing is lost
/// or counted twice, and what crosses a mark belongs to the step in which it ended.
class StepMeter {
 public:
  static constexpr std::size_t kWindow = 100;

  /// A backend ran. One does at a time, and what a device goes on with counts from the end of what
  /// it did before: only a call on the host can overlap with one on a device.
  void communication(Clock::time_point begin, Clock::time_point end) noexcept {
    add(communication_, end - begin);
  }
  /// A user thread waited; intervals that overlap count once.
  void blocked(Clock::time_point begin, Clock::time_point end);
  /// One operation was scheduled so long after it was submitted.
  void negotiated(std::chrono::nanoseconds time) noexcept;
  void waited_for_data(std::chrono::nanoseconds time) noexcept { add(ready_wait_, time); }
  void packed(std::chrono::nanoseconds time) noexcept { add(pack_, time); }

  /// A step ends and the next begins; the first call begins the first. `counters` are the context's
  /// at this moment: the fields before `negotiated`.
  void step(Clock::time_point now, const Stats& counters);
  /// `counters` with what the meter knows: the times, `negotiated` and `step`.
  [[nodiscard]] Stats fill(const Stats& counters) const;

 private:
  using Total = std::atomic<std::int64_t>;

  static void add(Total& total, std::chrono::nanoseconds time) noexcept {
    if (time.count() > 0) total.fetch_add(time.count(), std::memory_order_relaxed);
  }
  [[nodiscard]] StepSample totals(const Stats& counters) const;

  Total negotiation_{0};
  Total ready_wait_{0};
  Total pack_{0};
  Total communication_{0};
  std::atomic<std::uint64_t> negotiated_{0};

  mutable std::mutex intervals_mutex_;
  IntervalUnion blocked_;

  mutable std::mutex steps_mutex_;  // taken before intervals_mutex_
  std::optional<Clock::time_point> began_;
  StepSample at_mark_;
  std::vector<StepSample> window_;  // a ring once it is full
  std::uint64_t count_ = 0;
};

/// Field by field over a window in any order; `count` and `last` are left to the caller.
[[nodiscard]] StepStats summarize(const std::vector<StepSample>& window);

}  // namespace hvd::observe
