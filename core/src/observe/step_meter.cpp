#include "observe/step_meter.hpp"

#include <algorithm>

#include "observe/stats_fields.hpp"

namespace hvd::observe {
namespace {

using std::chrono::nanoseconds;

StepSample difference(const StepSample& later, const StepSample& earlier) {
  StepSample step;
  for (const auto& field : kStepTimes) {
    step.*field.value = later.*field.value - earlier.*field.value;
  }
  // Two threads may mark at the same time, so that the later mark has the earlier counters.
  for (const auto& field : kStepCounts) {
    const std::uint64_t before = earlier.*field.value;
    step.*field.value = std::max(later.*field.value, before) - before;
  }
  return step;
}

template <class Value>
struct Summary {
  Value mean{0};
  Value p50{0};
  Value p99{0};
};

template <class Value>
Summary<Value> summary_of(const std::vector<StepSample>& window, Value StepSample::*field) {
  std::vector<Value> values;
  Value sum{0};
  for (const StepSample& sample : window) {
    values.push_back(sample.*field);
    sum += sample.*field;
  }
  std::sort(values.begin(), values.end());
  const auto nearest_rank = [&](std::size_t percent) {
    return values[(values.size() * percent + 99) / 100 - 1];
  };
  return {sum / values.size(), nearest_rank(50), nearest_rank(99)};
}

template <class Field>
void summarize_field(StepStats& stats, const std::vector<StepSample>& window, const Field& field) {
  const auto summary = summary_of(window, field.value);
  stats.mean.*field.value = summary.mean;
  stats.p50.*field.value = summary.p50;
  stats.p99.*field.value = summary.p99;
}

}  // namespace

// Intervals are reported when they end, so nearly all of them are appended.
void IntervalUnion::add(Clock::time_point begin, Clock::time_point end) {
  if (end <= begin) return;
  auto first = recent_.end();
  while (first != recent_.begin() && std::prev(first)->end >= begin) --first;
  auto last = first;
  std::chrono::nanoseconds covered{0};
  while (last != recent_.end() && last->begin <= end) {
    covered += last->end - last->begin;
    begin = std::min(begin, last->begin);
    end = std::max(end, last->end);
    ++last;
  }
  total_ += (end - begin) - covered;
  recent_.insert(recent_.erase(first, last), {begin, end});
  if (recent_.size() > 2 * kRemembered) recent_.erase(recent_.begin(), recent_.end() - kRemembered);
}

void StepMeter::blocked(Clock::time_point begin, Clock::time_point end) {
  const std::lock_guard lock(intervals_mutex_);
  blocked_.add(begin, end);
}

void StepMeter::negotiated(nanoseconds time) noexcept {
  add(negotiation_, time);
  negotiated_.fetch_add(1, std::memory_order_relaxed);
}

void StepMeter::step(Clock::time_point now, const Stats& counters) {
  const std::lock_guard lock(steps_mutex_);
  const StepSample at = totals(counters);
  if (began_) {
    StepSample step = difference(at, at_mark_);
    step.duration = std::max(nanoseconds(now - *began_), nanoseconds{0});
    // A wait that began before the last mark can be longer than the step.
    step.compute = std::max(step.duration - step.exposed, nanoseconds{0});
    if (window_.size() < kWindow) {
      window_.push_back(step);
    } else {
      window_[count_ % kWindow] = step;
    }
    ++count_;
  }
  began_ = now;
  at_mark_ = at;
}

std::vector<StepSample> StepMeter::recent(std::size_t count) const {
  const std::lock_guard lock(steps_mutex_);
  std::vector<StepSample> steps;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>({count, count_, kWindow}); ++i) {
    steps.push_back(window_[(count_ - 1 - i) % kWindow]);
  }
  return steps;
}

void StepMeter::found_slowest(int rank, double cost) {
  const std::lock_guard lock(steps_mutex_);
  slowest_ = rank;
  slowest_cost_ = std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(cost));
}

Stats StepMeter::fill(const Stats& counters) const {
  Stats stats = counters;
  const StepSample now = totals(counters);
  stats.negotiated = now.negotiated;
  stats.communication = now.communication;
  stats.exposed = now.exposed;
  stats.negotiation = now.negotiation;
  stats.ready_wait = now.ready_wait;
  stats.pack = now.pack;
  std::vector<StepSample> window;
  StepSample last;
  std::uint64_t count = 0;
  {
    const std::lock_guard lock(steps_mutex_);
    window = window_;
    count = count_;
    stats.slowest_rank = slowest_;
    stats.slowest_cost = slowest_cost_;
    if (count > 0) last = window_[(count - 1) % kWindow];
  }
  stats.step = summarize(window);
  stats.step.count = count;
  stats.step.last = last;
  return stats;
}

// Duration and compute belong to a step, and are 0 here.
StepSample StepMeter::totals(const Stats& counters) const {
  StepSample total;
  {
    const std::lock_guard lock(intervals_mutex_);
    total.exposed = blocked_.total();
  }
  total.communication = nanoseconds(communication_.load(std::memory_order_relaxed));
  total.negotiation = nanoseconds(negotiation_.load(std::memory_order_relaxed));
  total.ready_wait = nanoseconds(ready_wait_.load(std::memory_order_relaxed));
  total.pack = nanoseconds(pack_.load(std::memory_order_relaxed));
  total.negotiated = negotiated_.load(std::memory_order_relaxed);
  total.operations = counters.completed;
  total.schedule_hits = counters.schedule_hits;
  total.collectives = counters.collectives;
  total.bytes = counters.bytes;
  total.fused_bytes = counters.fused_bytes;
  total.messages = counters.control_messages_sent + counters.control_messages_received;
  return total;
}

StepStats summarize(const std::vector<StepSample>& window) {
  StepStats stats;
  stats.window = window.size();
  if (window.empty()) return stats;
  for (const auto& field : kStepTimes) summarize_field(stats, window, field);
  for (const auto& field : kStepCounts) summarize_field(stats, window, field);
  return stats;
}

}  // namespace hvd::observe
