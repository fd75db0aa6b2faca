#include "measure.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace hvd::bench {
namespace {

constexpr int kFewest = 5;
constexpr int kMost = 20'000;

double run_once(Collective& collective, std::size_t index) {
  const auto began = Clock::now();
  collective.run(index);
  return std::chrono::duration<double, std::micro>(Clock::now() - began).count();
}

template <class T>
T reduced(Context& context, T value, ReduceOp op) {
  allreduce(std::span<T>(&value, 1), {.op = op, .context = &context});
  return value;
}

/// All ranks must run the same number of iterations, so the slowest rank's estimate decides.
int agree_on_iterations(Context& context, const Options& options, double trial_us) {
  if (options.iterations > 0) return options.iterations;
  const double slowest_us = std::max(reduced(context, trial_us, ReduceOp::max), 0.1);
  const double budget_us = std::chrono::duration<double, std::micro>(options.budget).count();
  return static_cast<int>(std::clamp<double>(budget_us / slowest_us, kFewest, kMost));
}

}  // namespace

double percentile(const std::vector<double>& sorted, double share) {
  const auto place =
      static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(place, 1) - 1];
}

Row measure(Context& context, const Options& options, const Extent& extent) {
  const std::unique_ptr<Collective> collective = make_collective(context, options, extent);
  Row row;
  row.extent = extent;
  std::int64_t wrong = options.check ? collective->check() : 0;

  std::size_t index = 0;
  // Uses the fastest warm-up run, because one that the scheduler interrupted would give too few
  // iterations.
  double trial_us = std::numeric_limits<double>::infinity();
  const bool needs_trial = options.warmup == 0 && options.iterations == 0;
  for (int i = 0; i < options.warmup + (needs_trial ? 1 : 0); ++i) {
    trial_us = std::min(trial_us, run_once(*collective, index++));
  }
  row.iterations = agree_on_iterations(context, options, trial_us);

  barrier({.context = &context});
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(row.iterations));
  for (int i = 0; i < row.iterations; ++i) times.push_back(run_once(*collective, index++));

  allreduce(std::span<double>(times), {.op = ReduceOp::max, .context = &context});
  std::sort(times.begin(), times.end());
  row.min_us = times.front();
  row.p50_us = percentile(times, 0.50);
  row.p99_us = percentile(times, 0.99);

  // Checks again after the load, because an engine may be right at first and wrong when its buffers
  // wrap.
  if (options.check) wrong += collective->check();
  row.wrong = reduced(context, wrong, ReduceOp::sum);
  return row;
}

}  // namespace hvd::bench
