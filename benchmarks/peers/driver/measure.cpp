#include "measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

namespace hvd::peers {
namespace {

using Clock = std::chrono::steady_clock;
using Micros = std::chrono::duration<double, std::micro>;

constexpr std::size_t kTotal = std::size_t{64} << 20;
constexpr std::size_t kMostBuffers = 65'536;
constexpr std::size_t kLine = 64;
constexpr int kFewest = 5;
constexpr int kMost = 20'000;

double percentile(const std::vector<double>& sorted, double share) {
  const auto place =
      static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(place, 1) - 1];
}

/// Measures one size of one library: it holds the buffers and the number of the next one.
class Bench {
 public:
  Bench(Library& library, std::size_t bytes)
      : library_(library),
        count_(bytes / sizeof(float)),
        stride_((bytes + kLine - 1) / kLine * kLine / sizeof(float)),
        buffers_(rotation(bytes)),
        memory_(library.memory(stride_ * sizeof(float) * buffers_)) {}

  [[nodiscard]] double run(const std::string& way) {
    float* const data = memory_ + index_++ % buffers_ * stride_;
    const auto began = Clock::now();
    library_.allreduce(data, count_, way);
    return Micros(Clock::now() - began).count();
  }

  /// Returns the number of wrong elements on this rank. There is no barrier, so other ranks may
  /// still fill their buffers or may have finished.
  [[nodiscard]] double check(const std::string& way) {
    const auto own = static_cast<std::size_t>(library_.rank());
    const auto ranks = static_cast<std::size_t>(library_.ranks());
    float sums[3] = {};
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t rank = 0; rank < ranks; ++rank) sums[i] += value(i, rank);
    }
    for (std::size_t i = 0; i < count_; ++i) memory_[i] = value(i, own);
    library_.allreduce(memory_, count_, way);
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < count_; ++i) wrong += memory_[i] == sums[i % 3] ? 0 : 1;
    std::fill_n(memory_, count_, 0.0F);
    return static_cast<double>(wrong);
  }

 private:
  static float value(std::size_t index, std::size_t rank) {
    return 1.0F + static_cast<float>((index + rank) % 3);
  }

  Library& library_;
  std::size_t count_;
  std::size_t stride_;  // floats
  std::size_t buffers_;
  float* memory_;
  std::size_t index_ = 0;
};

double slowest(Library& library, double value) {
  library.combine(std::span(&value, 1), Combine::maximum);
  return value;
}

/// Runs two rounds over all algorithms, the second only over those that were near the best.
std::string quickest(Library& library, Bench& bench, const std::vector<std::string>& ways) {
  constexpr double kRound = 2000;  // µs for each way
  constexpr double kNear = 1.5;
  if (ways.size() == 1) return ways.front();
  std::vector<double> best(ways.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const double least = *std::min_element(best.begin(), best.end());
      if (round > 0 && best[i] > kNear * least) continue;
      const double trial = slowest(library, std::min(bench.run(ways[i]), bench.run(ways[i])));
      std::vector<double> times(static_cast<std::size_t>(std::clamp(kRound / trial, 2.0, 100.0)));
      for (double& time : times) time = bench.run(ways[i]);
      library.combine(times, Combine::maximum);
      std::sort(times.begin(), times.end());
      best[i] = std::min(best[i], percentile(times, 0.5));
    }
  }
  return ways[static_cast<std::size_t>(std::min_element(best.begin(), best.end()) - best.begin())];
}

/// Measures in ten batches, or fewer when that takes far too long, because on a busy machine a
/// library that spins loses its core for milliseconds. Times are those of the slowest rank.
std::vector<double> timed(Library& library, Bench& bench, const Row& row, double budget) {
  constexpr std::size_t kBatches = 10;
  constexpr double kFarLonger = 4;
  const auto all = static_cast<std::size_t>(row.iterations);
  const std::size_t batch = (all + kBatches - 1) / kBatches;
  std::vector<double> times;
  times.reserve(all);
  double spent = 0;
  while (times.size() < all && spent < kFarLonger * budget) {
    library.barrier();
    std::vector<double> some(std::min(batch, all - times.size()));
    for (double& time : some) time = bench.run(row.way);
    library.combine(some, Combine::maximum);
    for (const double time : some) spent += time;
    times.insert(times.end(), some.begin(), some.end());
  }
  return times;
}

}  // namespace

std::size_t rotation(std::size_t bytes) {
  return std::clamp<std::size_t>(kTotal / std::max(bytes, kLine), 1, kMostBuffers);
}

std::optional<Row> measure(Library& library, const Options& options, std::size_t bytes) {
  Row row;
  row.bytes = std::max(bytes / sizeof(float), std::size_t{1}) * sizeof(float);
  std::vector<std::string> ways = library.ways(row.bytes);
  if (!options.way.empty()) {
    if (std::find(ways.begin(), ways.end(), options.way) == ways.end()) return std::nullopt;
    ways = {options.way};
  }
  Bench bench(library, row.bytes);
  library.barrier();
  row.way = quickest(library, bench, ways);
  double wrong = bench.check(row.way);

  double trial = std::numeric_limits<double>::infinity();
  for (int i = 0; i < options.warmup; ++i) trial = std::min(trial, bench.run(row.way));
  trial = slowest(library, trial);
  const double budget = Micros(std::chrono::duration<double>(options.seconds)).count();
  row.iterations =
      options.iterations > 0
          ? options.iterations
          : static_cast<int>(std::clamp<double>(budget / std::max(trial, 0.1), kFewest, kMost));

  std::vector<double> times =
      timed(library, bench, row,
            options.iterations > 0 ? std::numeric_limits<double>::infinity() : budget);
  row.iterations = static_cast<int>(times.size());
  std::sort(times.begin(), times.end());
  row.min_us = times.front();
  row.p50_us = percentile(times, 0.50);
  row.p99_us = percentile(times, 0.99);

  wrong += bench.check(row.way);
  library.combine(std::span(&wrong, 1), Combine::sum);
  row.wrong = static_cast<std::int64_t>(wrong);
  return row;
}

}  // namespace hvd::peers
