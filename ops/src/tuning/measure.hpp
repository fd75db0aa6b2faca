// Measures at start-up how fast the algorithms are on these hosts, and makes a table from it.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <hvd/core/internal/backend.hpp>
#include <hvd/core/types.hpp>

#include "tuning/algorithm_plan.hpp"

namespace hvd::detail {

/// Describes one of the algorithms that are compared.
struct Candidate {
  Algorithm algorithm = Algorithm::ring;
  std::size_t segment = 0;  ///< as in AlgorithmTable
};

/// Returns a backend that uses one candidate, prepared for it.
using CandidateBackend = std::function<Backend&()>;

/// Describes a call that is measured.
struct CallSize {
  OpKind kind = OpKind::allreduce;  ///< or broadcast, allgather, reducescatter
  std::size_t bytes = 0;
};

/// Holds the time that such a call took with each candidate.
struct Timing {
  OpKind kind = OpKind::allreduce;
  std::size_t bytes = 0;
  std::vector<double> times;  ///< µs, by candidate
};

struct Measurement {
  int rank = 0;
  int size = 1;
  Deadline deadline;
  /// Rank 0 leaves out calls that would probably end after this time.
  std::chrono::microseconds budget{50'000};
};

/// Returns rank 0's medians of a few calls of each size, on every rank: they are broadcast over the
/// first candidate. Sizes are measured in the given order until the budget is spent, so pass the
/// most used ones first. Collective; throws like the backends.
[[nodiscard]] std::vector<Timing> measure(std::span<const CandidateBackend> candidates,
                                          std::span<const CallSize> sizes,
                                          const Measurement& options);

/// Returns the time of an allreduce of f32 zeros in µs: the least of a few calls, or of one where
/// that takes long. `decides` is true on one rank, the root of the group. Collective.
[[nodiscard]] double time_allreduce(Backend& group, bool decides, std::size_t bytes,
                                    Deadline deadline);

/// A candidate replaces the default algorithm if it takes at most this part of its time:
/// differences within the noise must not change the choice from run to run.
inline constexpr double kClearlyFaster = 0.85;

/// Returns the table that follows from timings in any order: a size takes the best candidate of the
/// measured size that is nearest to it by ratio. Without timings of this kind the default holds.
/// The default algorithm is among the candidates. The function has no side effects.
[[nodiscard]] AlgorithmTable choose(OpKind kind, std::span<const Timing> timings,
                                    std::span<const Candidate> candidates,
                                    const AlgorithmTable& defaults);

/// Describes a timing in a line, as in "allreduce 65536 B: collective 11.0 µs, ring 7.5 µs: ring".
[[nodiscard]] std::string describe(const Timing& timing, std::span<const Candidate> candidates,
                                   const AlgorithmTable& defaults);

}  // namespace hvd::detail
