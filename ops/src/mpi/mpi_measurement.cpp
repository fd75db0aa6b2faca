#include "mpi/mpi_measurement.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "fusion/buffer.hpp"

namespace hvd {
namespace {

constexpr std::size_t kRepeats = 5;
constexpr std::size_t kKi = 1024;

struct Point {
  OpKind kind;
  std::size_t bytes;
};
// The most used operation first; see docs/backends.md.
constexpr std::array kPoints{
    Point{OpKind::allreduce, 256},         Point{OpKind::allreduce, 8 * kKi},
    Point{OpKind::allreduce, 128 * kKi},   Point{OpKind::allreduce, 1024 * kKi},
    Point{OpKind::broadcast, 8 * kKi},     Point{OpKind::allgather, 8 * kKi},
    Point{OpKind::reducescatter, 8 * kKi}, Point{OpKind::broadcast, 256 * kKi},
    Point{OpKind::allgather, 256 * kKi},   Point{OpKind::reducescatter, 256 * kKi},
    Point{OpKind::allreduce, 4096 * kKi},
};

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
  Probe(int rank, int size, Deadline deadline) : rank_(rank), size_(size), deadline_(deadline) {}

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

  /// Rank 0's doubles to all, by the way that is surely there.
  void share(Backend& backend, std::span<double> values) {
    auto* const data = reinterpret_cast<std::byte*>(values.data());
    const TensorSlice tensor{data, data, static_cast<std::int64_t>(values.size())};
    backend.broadcast({.tensors = {&tensor, 1}, .device = {}, .dtype = DType::f64}, deadline_);
  }

  [[nodiscard]] bool decides() const noexcept { return rank_ == 0; }

 private:
  /// Zeroed once: its first touch must not be measured, and sums of zeros stay zeros.
  static std::byte* zeros(FusionBuffer& buffer, std::size_t size) {
    if (buffer.capacity() >= size) return buffer.reserve(size);
    return static_cast<std::byte*>(std::memset(buffer.reserve(size), 0, size));
  }

  int rank_;
  int size_;
  Deadline deadline_;
  FusionBuffer memory_;
  FusionBuffer own_;
};

/// What all calls at this point will take, judged by the nearest size below of any kind.
double estimate(const std::vector<MpiSample>& samples, const Point& point) {
  double time = 0;
  double bytes = 1;
  for (const MpiSample& sample : samples) {
    const auto size = static_cast<double>(sample.bytes);
    if (sample.bytes > point.bytes || size < bytes) continue;
    time = sample.collective + sample.ring;
    bytes = size;
  }
  const double ratio = static_cast<double>(point.bytes) / bytes;
  return time * ratio * (kRepeats + 2);  // the first call, with its page faults, counts twice
}

}  // namespace

std::vector<MpiSample> measure_mpi(Backend& collective, Backend& ring, int rank, int size,
                                   Deadline deadline, const MpiMeasurementOptions& options) {
  std::vector<MpiSample> samples;
  Probe probe(rank, size, deadline);
  const auto began = Clock::now();
  const double budget = microseconds(options.budget);
  for (const Point& point : kPoints) {
    std::array<double, 1> go{};
    if (probe.decides()) {
      go[0] = microseconds(Clock::now() - began) + estimate(samples, point) < budget ? 1 : 0;
    }
    probe.share(collective, go);
    if (go[0] == 0) continue;
    const auto timed = [&](Backend& backend) {
      const auto start = Clock::now();
      probe.run(backend, point);
      return microseconds(Clock::now() - start);
    };
    static_cast<void>(timed(collective));
    static_cast<void>(timed(ring));
    std::array<double, kRepeats> collective_times{};
    std::array<double, kRepeats> ring_times{};
    for (std::size_t i = 0; i < kRepeats; ++i) {
      collective_times[i] = timed(collective);
      ring_times[i] = timed(ring);
    }
    std::array<double, 2> times{median(collective_times), median(ring_times)};
    probe.share(collective, times);
    samples.push_back(
        {.kind = point.kind, .bytes = point.bytes, .collective = times[0], .ring = times[1]});
  }
  return samples;
}

}  // namespace hvd
