#include "engine/observer.hpp"

#include <algorithm>

namespace hvd::detail {
namespace {

/// The steps over which blocked times are averaged: few, so that a slow rank is soon noticed, and
/// enough to tell it from noise.
constexpr std::size_t kRecentSteps = 20;

TimelineArgs args_for(const Request& request) {
  TimelineArgs args;
  args.dtype = request.dtype;
  args.shape = request.shape;
  args.bytes = input_bytes(request);
  return args;
}

}  // namespace

std::uint64_t input_bytes(const Request& request) {
  if (request.kind >= OpKind::barrier) return 0;  // its empty shape would be that of a scalar
  return static_cast<std::uint64_t>(element_count(request.shape)) * size_of(request.dtype);
}

Stats Observer::counted() const {
  Stats stats = counters.read();
  stats.timeline_dropped = timeline.dropped();
  return stats;
}

BlockedTimes Observer::blocked_times(int rank) const {
  const std::vector<StepSample> steps = meter.recent(kRecentSteps);
  if (steps.size() < kRecentSteps) return {};
  const double count = kRecentSteps;
  const auto in_seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  BlockedTimes times{.ranks = 1, .step = 0, .least = {.rank = rank}, .second = {}};
  for (const StepSample& step : steps) {
    times.step += in_seconds(step.duration) / count;
    times.least.mean += in_seconds(step.exposed) / count;
  }
  for (const StepSample& step : steps) {
    const double deviation = in_seconds(step.exposed) - times.least.mean;
    times.least.variance += deviation * deviation / (count * (count - 1));
  }
  return times;
}

void Observer::scheduled(PendingTensor& tensor, bool negotiated, Clock::time_point now) {
  tensor.scheduled_at = std::max(now, tensor.since);  // `now` may be a little old
  if (negotiated) meter.negotiated(tensor.scheduled_at - tensor.since);
  if (!timeline.on()) return;
  const Request& request = tensor.submission.request;
  timeline.complete(request.name, timeline_phase::kNegotiate, tensor.since, tensor.scheduled_at,
                    args_for(request));
}

void Observer::phase(const LocalBatch& batch, std::string_view name, Clock::time_point begin,
                     Clock::time_point end, std::string_view algorithm) {
  if (!timeline.on()) return;
  for (const auto& tensor : batch.tensors) {
    const Request& request = tensor->submission.request;
    TimelineArgs args = args_for(request);
    args.fused = batch.tensors.size();
    args.algorithm = algorithm;
    timeline.complete(request.name, name, begin, end, args);
  }
}

void Observer::dequeued(const LocalBatch& batch, Clock::time_point now) {
  if (!timeline.on()) return;
  for (const auto& tensor : batch.tensors) {
    timeline.complete(tensor->submission.request.name, timeline_phase::kQueue, tensor->scheduled_at,
                      now);
  }
}

}  // namespace hvd::detail
