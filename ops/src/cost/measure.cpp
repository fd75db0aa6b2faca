#include "cost/measure.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "fusion/buffer.hpp"

namespace hvd {
namespace {

constexpr std::size_t kRepeats = 5;

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

double median(std::array<double, kRepeats>& times) {
  std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
  return times[kRepeats / 2];
}

/// One call of each kind on memory of its own.
class Probe {
 public:
  Probe(int size, Deadline deadline) : size_(size), deadline_(deadline) {}

  void run(Backend& backend, const Point& point) {
    const auto count = static_cast<std::int64_t>(point.bytes / sizeof(float));
    const std::int64_t part = count / size_;
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size_), part);
    std::byte* const data = zeros(memory_, point.bytes);
    std::byte* const own = zeros(own_, point.bytes);
    switch (point.kind) {
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
  [[nodiscard]] double timed(Backend& backend, const Point& point) {
    const auto start = Clock::now();
    run(backend, point);
    return microseconds(Clock::now() - start);
  }

  /// Rank 0's doubles to all.
  void share(Backend& backend, std::span<double> values) {
    auto* const data = reinterpret_cast<std::byte*>(values.data());
    const TensorSlice tensor{data, data, static_cast<std::int64_t>(values.size())};
    backend.broadcast({.tensors = {&tensor, 1}, .device = {}, .dtype = DType::f64}, deadline_);
  }

 private:
  /// Zeroed once: its first touch must not be measured, and sums of zeros stay zeros.
  static std::byte* zeros(FusionBuffer& buffer, std::size_t size) {
    if (buffer.capacity() >= size) return buffer.reserve(size);
    return static_cast<std::byte*>(std::memset(buffer.reserve(size), 0, size));
  }

  int size_;
  Deadline deadline_;
  FusionBuffer memory_;
  FusionBuffer own_;
};

/// What all calls at this point will take, judged by the nearest size below of any kind.
double estimate(const std::vector<Sample>& samples, const Point& point) {
  double time = 0;
  double bytes = 1;
  for (const Sample& sample : samples) {
    const auto size = static_cast<double>(sample.bytes);
    if (sample.bytes > point.bytes || size < bytes) continue;
    time = 0;
    for (const double one : sample.times) time += one;
    bytes = size;
  }
  // A few times as many bytes hardly take longer while they are few.
  const double ratio = std::max(1.0, static_cast<double>(point.bytes) / bytes / 8);
  return time * ratio * (kRepeats + 2);  // the first call, with its page faults, counts twice
}

}  // namespace

std::vector<Sample> measure(std::span<const Contender> contenders, std::span<const Point> points,
                            const Measurement& options) {
  std::vector<Sample> samples;
  Probe probe(options.size, options.deadline);
  const auto began = Clock::now();
  const double budget = microseconds(options.budget);
  for (const Point& point : points) {
    std::array<double, 1> go{};
    if (options.rank == 0) {
      go[0] = microseconds(Clock::now() - began) + estimate(samples, point) < budget ? 1 : 0;
    }
    probe.share(contenders.front()(), go);
    if (go[0] == 0) continue;
    for (const Contender& contender : contenders) probe.run(contender(), point);
    std::vector<std::array<double, kRepeats>> times(contenders.size());
    for (std::size_t i = 0; i < kRepeats; ++i) {
      for (std::size_t c = 0; c < contenders.size(); ++c) {
        times[c][i] = probe.timed(contenders[c](), point);
      }
    }
    Sample& sample = samples.emplace_back(Sample{point.kind, point.bytes, {}});
    for (auto& of_one : times) sample.times.push_back(median(of_one));
    probe.share(contenders.front()(), sample.times);
  }
  return samples;
}

double time_allreduce(Backend& group, bool decides, std::size_t bytes, Deadline deadline) {
  constexpr double kLong = 5'000;  // µs
  Probe probe(1, deadline);
  const Point point{OpKind::allreduce, bytes};
  double least = probe.timed(group, point);
  std::array<double, 1> again{decides && least < kLong ? 1.0 : 0.0};
  probe.share(group, again);
  for (std::size_t i = 0; again[0] > 0 && i < kRepeats; ++i) {
    least = std::min(least, probe.timed(group, point));
  }
  return least;
}

}  // namespace hvd
