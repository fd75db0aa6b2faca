// Computes the cost of a message between two ranks, and the algorithms that follow from it. Only
// `measure_link` has side effects.
#pragma once

#include <cstddef>

#include <hvd/core/internal/backend.hpp>

#include "tuning/algorithm_plan.hpp"

namespace hvd::detail {

/// The most bytes that a rank receives by doubling: more of them leave the cache between being
/// received and being reduced.
inline constexpr std::size_t kMostByDoubling = std::size_t{128} << 10;

/// A message of b bytes takes latency + b / bandwidth (Hockney 1994).
struct LinkCost {
  double latency_us = 0;
  double bytes_per_us = 0;
};

/// Measures two allreduces over `group`, of a few bytes and of some hundred KiB. Every rank gets
/// numbers of its own. `decides` is true on the group's rank 0. Collective among its `ranks`, which
/// are two or more.
[[nodiscard]] LinkCost measure_link(Backend& group, int ranks, bool decides, Deadline deadline);

/// Returns doubling for small sizes and the ring from the size on at which both take as long,
///   ceil(log2 n)·latency + bytes/bandwidth = 2(n-1)·latency + 2·bytes/(n·bandwidth),
/// rounded down to a power of two. Sizes are the bytes that a rank receives by doubling.
[[nodiscard]] AlgorithmTable ring_table(const LinkCost& cost, int ranks);

/// Returns the bytes per round of a pipeline over `hosts` hosts, a power of two. They are chosen so
/// that latency and hand-overs take a small part of the time of a round.
[[nodiscard]] std::size_t segment_for(const LinkCost& cost, int hosts);

}  // namespace hvd::detail
