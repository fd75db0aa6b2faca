// Times one collective at one size.
#pragma once

#include <hvd/hvd.hpp>

#include "collective.hpp"
#include "options.hpp"

namespace hvd::bench {

/// Holds times in microseconds. An iteration's time is that of the slowest rank.
struct Row {
  Extent extent;
  double min_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  std::int64_t wrong = 0;  ///< elements over all ranks
  int iterations = 0;
};

/// Collective. Returns the same row on every rank.
[[nodiscard]] Row measure(Context& context, const Options& options, const Extent& extent);

/// Returns the smallest value of `sorted` that is not exceeded by at least this share of the
/// values. `sorted` is not empty.
[[nodiscard]] double percentile(const std::vector<double>& sorted, double share);

}  // namespace hvd::bench
