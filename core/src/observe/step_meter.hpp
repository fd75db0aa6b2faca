// Measures where the time of a step goes, for `Stats`.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include <hvd/core/stats.hpp>
#include <hvd/core/types.hpp>

namespace hvd::observe {

/// Computes the total length of the union of intervals, which is how long at least one of several
/// threads waited. The length never shrinks. Overlapping intervals are merged, and at least the
/// latest `kRemembered` merged ones are kept. The time in which an interval overlaps an older one
/// counts twice. One thread at a time may call it.
class IntervalUnion {
 public:
  static constexpr std::size_t kRemembered = 64;

  /// Empty and reversed intervals are ignored.
  void add(Clock::time_point begin, Clock::time_point end);
  [[nodiscard]] std::chrono::nanoseconds total() const noexcept { return total_; }

 private:
  struct Interval {
    Clock::time_point begin;
    Clock::time_point end;
  };

  std::vector<Interval> recent_;  // disjoint, ascending
  std::chrono::nanoseconds total_{0};
};

/// Any thread may call it, except for the destructor. A report costs a relaxed addition or a short
/// lock.
///
/// All values are totals that grow, and a step is the difference of two readings. Nothing is lost
/// or counted twice, and what crosses a mark belongs to the step in which it ended.
class StepMeter {
 public:
  static constexpr std::size_t kWindow = 100;

  /// Records that a backend ran. One runs at a time, and the asynchronous part of a call on a
  /// device counts from the end of the part before it: only a call on the host can overlap with one
  /// on a device.
  void communication(Clock::time_point begin, Clock::time_point end) noexcept {
    add(communication_, end - begin);
  }
  /// Records that a user thread waited. Time in which several threads waited counts once.
  void blocked(Clock::time_point begin, Clock::time_point end);
  /// Records that an operation was scheduled `time` after it was submitted.
  void negotiated(std::chrono::nanoseconds time) noexcept;
  void waited_for_data(std::chrono::nanoseconds time) noexcept { add(ready_wait_, time); }
  void packed(std::chrono::nanoseconds time) noexcept { add(pack_, time); }

  /// Ends a step and begins the next; the first call begins the first step. `counters` has the
  /// context's counters at this moment, in the fields before `negotiated`.
  void step(Clock::time_point now, const Stats& counters);
  /// Returns the last `count` steps in any order, or all that there were.
  [[nodiscard]] std::vector<StepSample> recent(std::size_t count) const;
  /// Records which rank is the slowest, or -1, and for how many seconds the others wait for it.
  void found_slowest(int rank, double cost);
  /// Returns `counters` with the fields of the meter: the times, `negotiated` and `step`.
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
  int slowest_ = -1;
  std::chrono::nanoseconds slowest_cost_{0};
};

/// Summarises each field over a window in any order. The caller sets `count` and `last`.
[[nodiscard]] StepStats summarize(const std::vector<StepSample>& window);

}  // namespace hvd::observe
