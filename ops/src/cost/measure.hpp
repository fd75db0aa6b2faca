// How fast the ways are here, measured at start-up.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <vector>

#include <hvd/core/backend.hpp>

#include "cost/choose.hpp"

namespace hvd {

/// A backend that goes one way, prepared for it when asked.
using Contender = std::function<Backend&()>;

struct Point {
  OpKind kind = OpKind::allreduce;  ///< or broadcast, allgather, reducescatter
  std::size_t bytes = 0;
};

struct Measurement {
  int rank = 0;
  int size = 1;
  Deadline deadline;
  /// Rank 0 leaves out what would probably end later than this.
  std::chrono::microseconds budget{50'000};
};

/// Rank 0's medians of a few calls at each point, on every rank: they are broadcast over the first
/// contender. The most used points come first. Collective; throws as the backends do.
[[nodiscard]] std::vector<Sample> measure(std::span<const Contender> contenders,
                                          std::span<const Point> points,
                                          const Measurement& options);

/// The time of an allreduce of f32 zeros, µs: the least of a few calls, of one where that takes
/// long. `decides` on one rank, the root of the group. Collective.
[[nodiscard]] double time_allreduce(Backend& group, bool decides, std::size_t bytes,
                                    Deadline deadline);

}  // namespace hvd
