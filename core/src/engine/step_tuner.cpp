#include "engine/step_tuner.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/request.hpp>

namespace hvd::detail {
namespace {

// The first cycles after a freeze are not measured: caches and buffers adapt to the new buckets.
constexpr int kWarmUp = 2;

std::size_t bytes_of(const FrozenSchedule& plan) {
  std::size_t bytes = 0;
  for (const PlannedBatch& batch : plan.batches) {
    for (const Request& request : batch.requests) {
      bytes += static_cast<std::size_t>(element_count(request.shape)) * size_of(request.dtype);
    }
  }
  return bytes;
}

/// Returns the quantile of sorted values: `part` of them are not greater than it.
double quantile(const std::vector<double>& sorted, double part) {
  return sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1) + 0.5)];
}

}  // namespace

StepTuner::StepTuner(const Settings& settings)
    : settings_(settings), search_({settings.start, 0}), sizes_(settings.start) {
  if (settings_.log.empty()) return;
  log_.open(settings_.log, std::ios::trunc);
  log_ << "trial,threshold,edge,cycles,median_us,spread_us,best_us,chosen" << std::endl;
  if (!log_) {
    throw Error(Errc::resource, fmt::format("HVD_AUTOTUNE_LOG: cannot write {}", settings_.log));
  }
  try {
    writer_.emplace(1);
  } catch (const std::exception& error) {
    throw Error(Errc::resource, fmt::format("HVD_AUTOTUNE_LOG: {}", error.what()));
  }
}

StepTuner::~StepTuner() {
  if (writer_) writer_->join();
}

void StepTuner::frozen(const FrozenSchedule& plan, std::uint32_t epoch) {
  const std::lock_guard lock(mutex_);
  epoch_.reset();
  const std::size_t bytes = bytes_of(plan);
  if (bytes < cycle_bytes_) return;
  if (bytes > cycle_bytes_) {
    // The current sizes may differ from the start of this search. That does no harm, because the
    // first trial of a search does not count.
    search_ = Autotuner({settings_.start, bytes});
    seconds_.clear();
    cycle_bytes_ = bytes;
  }
  if (search_.finished()) return;
  epoch_ = epoch;
  since_.reset();
  warm_up_ = kWarmUp;
}

bool StepTuner::turn(std::uint32_t epoch, std::uint64_t cycle, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (epoch != epoch_ || trial_is_over() || (since_ && cycle == cycle_)) return false;
  cycle_ = cycle;
  const std::optional<Clock::time_point> since = std::exchange(since_, now);
  if (!since) return false;
  if (warm_up_ > 0) {
    --warm_up_;
    return false;
  }
  seconds_.push_back(std::chrono::duration<double>(now - *since).count());
  return trial_is_over();
}

std::optional<BucketSizes> StepTuner::next() {
  const std::lock_guard lock(mutex_);
  if (search_.finished() || !trial_is_over()) return std::nullopt;
  end_trial();
  since_.reset();  // cycles have passed without a call since the last measured one
  const BucketSizes wanted = search_.propose().value_or(search_.best());
  if (search_.finished()) epoch_.reset();
  if (wanted == sizes_) return std::nullopt;
  epoch_.reset();
  sizes_ = wanted;
  return wanted;
}

void StepTuner::end_trial() {
  std::sort(seconds_.begin(), seconds_.end());
  const double median = quantile(seconds_, 0.5);
  const double spread = quantile(seconds_, 0.75) - quantile(seconds_, 0.25);
  const auto write = [this](const BucketSizes& sizes, std::size_t cycles, double of_trial,
                            double around, int chosen) {
    if (!writer_) return;
    std::string line =
        fmt::format("{},{},{},{},{:.3f},{:.3f},{:.3f},{}", trials_, sizes.threshold, sizes.edge,
                    cycles, of_trial * 1e6, around * 1e6, search_.best_seconds() * 1e6, chosen);
    boost::asio::post(*writer_, [this, line = std::move(line)] { log_ << line << std::endl; });
  };
  ++trials_;
  const BucketSizes sizes = search_.propose().value_or(sizes_);
  search_.measured(median);
  write(sizes, seconds_.size(), median, spread, 0);
  if (search_.finished()) write(search_.best(), 0, search_.best_seconds(), 0, 1);
  seconds_.clear();
}

bool StepTuner::finished() const {
  const std::lock_guard lock(mutex_);
  return search_.finished();
}

std::string StepTuner::summary() const {
  const std::lock_guard lock(mutex_);
  const BucketSizes best = search_.best();
  const std::string sizes =
      fmt::format("threshold {} KiB, edge {} KiB", best.threshold >> 10, best.edge >> 10);
  if (best == settings_.start) {
    return fmt::format("autotune: {} stays, after {} trials", sizes, trials_);
  }
  return fmt::format("autotune: {} is {:.1f} % faster than before, after {} trials", sizes,
                     100 * (1 - search_.best_ratio()), trials_);
}

}  // namespace hvd::detail
