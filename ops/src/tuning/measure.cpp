#include "tuning/measure.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "fusion/buffer.hpp"

namespace hvd::detail {
namespace {

constexpr std::size_t kRepeats = 5;

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

double median(std::array<double, kRepeats>& times) {
  std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
  return times[kRepeats / 2];
}

/// Makes calls of each kind on memory of its own.
class Probe {
 public:
  Probe(int size, Deadline deadline) : size_(size), deadline_(deadline) {}

  void run(Backend& backend, const CallSize& call) {
    const auto count = static_cast<std::int64_t>(call.bytes / sizeof(float));
    const std::int64_t part = count / size_;
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size_), part);
    std::byte* const data = zeros(memory_, call.bytes);
    std::byte* const own = zeros(own_, call.bytes);
    switch (call.kind) {
      case OpKind::allreduce: {
        const TensorSlice tensor{data, data, count};
        return backend.allreduce({.tensors = {&tensor, 1}, .device = {}}, deadline_);
      }
      case OpKind::broadcast: {
        const TensorSlice tensor{data, data, count};
        return backend.broadcast({.tensors = {&tensor, 1}, .device = {}}, deadline_);
      }
      case OpKind::allgather: {
        const GatherSlice tensor{part > 0 ? own : nullptr, data, counts};
        return backend.allgather({.tensors = {&tensor, 1}, .device = {}}, deadline_);
      }
      default: {
        const ScatterSlice tensor{data, own, counts};
        return backend.reducescatter({.tensors = {&tensor, 1}, .device = {}}, deadline_);
      }
    }
  }
  [[nodiscard]] double timed(Backend& backend, const CallSize& call) {
    const auto start = Clock::now();
    run(backend, call);
    return microseconds(Clock::now() - start);
  }

  /// Sends rank 0's values to all ranks.
  void share(Backend& backend, std::span<double> values) {
    auto* const data = reinterpret_cast<std::byte*>(values.data());
    const TensorSlice tensor{data, data, static_cast<std::int64_t>(values.size())};
    backend.broadcast({.tensors = {&tensor, 1}, .device = {}, .dtype = DType::f64}, deadline_);
  }

 private:
  /// The memory is zeroed once, so that its page faults are not measured. Sums of zeros stay zeros.
  static std::byte* zeros(FusionBuffer& buffer, std::size_t size) {
    if (buffer.capacity() >= size) return buffer.reserve(size);
    return static_cast<std::byte*>(std::memset(buffer.reserve(size), 0, size));
  }

  int size_;
  Deadline deadline_;
  FusionBuffer memory_;
  FusionBuffer own_;
};

/// Estimates how long all calls of this size take, from the nearest smaller size of any kind.
double estimate(const std::vector<Timing>& timings, const CallSize& call) {
  double time = 0;
  double bytes = 1;
  for (const Timing& timing : timings) {
    const auto size = static_cast<double>(timing.bytes);
    if (timing.bytes > call.bytes || size < bytes) continue;
    time = 0;
    for (const double one : timing.times) time += one;
    bytes = size;
  }
  // Latency dominates small calls: up to eight times the bytes are assumed to take the same time.
  const double ratio = std::max(1.0, static_cast<double>(call.bytes) / bytes / 8);
  return time * ratio * (kRepeats + 2);  // the first call, with its page faults, counts twice
}

/// Returns the index of the candidate that is taken at the timing's size.
std::size_t best(const Timing& timing, std::span<const Candidate> candidates,
                 const AlgorithmTable& defaults) {
  const auto is_default = [&](const Candidate& one) {
    return one.algorithm == defaults.at(timing.bytes);
  };
  const auto usual = static_cast<std::size_t>(
      std::find_if(candidates.begin(), candidates.end(), is_default) - candidates.begin());
  const auto fastest = static_cast<std::size_t>(
      std::min_element(timing.times.begin(), timing.times.end()) - timing.times.begin());
  return timing.times[fastest] <= kClearlyFaster * timing.times[usual] ? fastest : usual;
}

}  // namespace

std::vector<Timing> measure(std::span<const CandidateBackend> candidates,
                            std::span<const CallSize> sizes, const Measurement& options) {
  std::vector<Timing> timings;
  Probe probe(options.size, options.deadline);
  const auto began = Clock::now();
  const double budget = microseconds(options.budget);
  for (const CallSize& call : sizes) {
    std::array<double, 1> go{};
    if (options.rank == 0) {
      go[0] = microseconds(Clock::now() - began) + estimate(timings, call) < budget ? 1 : 0;
    }
    probe.share(candidates.front()(), go);
    if (go[0] == 0) continue;
    for (const CandidateBackend& candidate : candidates) probe.run(candidate(), call);
    std::vector<std::array<double, kRepeats>> times(candidates.size());
    for (std::size_t i = 0; i < kRepeats; ++i) {
      for (std::size_t c = 0; c < candidates.size(); ++c) {
        times[c][i] = probe.timed(candidates[c](), call);
      }
    }
    Timing& timing = timings.emplace_back(Timing{call.kind, call.bytes, {}});
    for (auto& of_one : times) timing.times.push_back(median(of_one));
    probe.share(candidates.front()(), timing.times);
  }
  return timings;
}

double time_allreduce(Backend& group, bool decides, std::size_t bytes, Deadline deadline) {
  constexpr double kLong = 5'000;  // µs
  Probe probe(1, deadline);
  const CallSize call{OpKind::allreduce, bytes};
  double least = probe.timed(group, call);
  std::array<double, 1> again{decides && least < kLong ? 1.0 : 0.0};
  probe.share(group, again);
  for (std::size_t i = 0; again[0] > 0 && i < kRepeats; ++i) {
    least = std::min(least, probe.timed(group, call));
  }
  return least;
}

AlgorithmTable choose(OpKind kind, std::span<const Timing> timings,
                      std::span<const Candidate> candidates, const AlgorithmTable& defaults) {
  std::vector<Timing> sorted;
  for (const Timing& timing : timings) {
    if (timing.kind == kind) sorted.push_back(timing);
  }
  if (sorted.empty()) return defaults;
  std::sort(sorted.begin(), sorted.end(),
            [](const Timing& a, const Timing& b) { return a.bytes < b.bytes; });
  const auto chosen = [&](const Timing& timing) {
    return candidates[best(timing, candidates, defaults)];
  };
  const Candidate first = chosen(sorted.front());
  AlgorithmTable table(first.algorithm, first.segment);
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const Candidate next = chosen(sorted[i]);
    const double middle =
        std::sqrt(static_cast<double>(sorted[i - 1].bytes) * static_cast<double>(sorted[i].bytes));
    table.from(static_cast<std::size_t>(std::ceil(middle)), next.algorithm, next.segment);
  }
  return table;
}

std::string describe(const Timing& timing, std::span<const Candidate> candidates,
                     const AlgorithmTable& defaults) {
  std::string text = fmt::format("{} {} B:", to_string(timing.kind), timing.bytes);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    text += fmt::format("{} {} {:.1f} µs", i == 0 ? "" : ",", to_string(candidates[i].algorithm),
                        timing.times[i]);
  }
  return text +
         fmt::format(": {}", to_string(candidates[best(timing, candidates, defaults)].algorithm));
}

}  // namespace hvd::detail
