// Finds the rank that makes all others slow. A step takes as long as on the slowest rank, and only
// that rank does not wait for another: it is the one that is blocked on communication for the
// shortest time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>

#include <hvd/core/types.hpp>

namespace hvd::detail {

/// Describes how long one rank was blocked on communication in each of its last steps, in seconds.
struct BlockedTime {
  std::int32_t rank = -1;  ///< -1: of no rank
  double mean = 0;
  double variance = 0;  ///< of the mean, as an estimate of the true one

  friend bool operator==(const BlockedTime&, const BlockedTime&) = default;
};

/// Summarises the blocked times of some ranks. It has the same size for any number of ranks.
struct BlockedTimes {
  /// How many are counted. Unsigned, so that a sum wraps where a rank sends a wrong number.
  std::uint32_t ranks = 0;
  double step = 0;  ///< the longest mean of their steps, in seconds
  BlockedTime least{};
  BlockedTime second{};

  void add(const BlockedTimes& others);

  friend bool operator==(const BlockedTimes&, const BlockedTimes&) = default;
};

struct Slowest {
  std::int32_t rank = -1;  ///< -1: no rank is clearly the slowest
  double cost = 0;         ///< seconds of each step for which all others wait for it
  double step = 0;         ///< the duration of a step, in seconds

  friend bool operator==(const Slowest&, const Slowest&) = default;
};

/// Returns the slowest of `size` ranks. It is named when the others wait for at least a tenth of a
/// step longer than it does, and when that is six standard errors, so that noise names nobody.
[[nodiscard]] Slowest slowest_of(const BlockedTimes& times, int size);

/// Decides when a slowest rank is news: when that rank has not been news within `kQuiet`.
class SlowestNews {
 public:
  static constexpr std::chrono::minutes kQuiet{10};

  [[nodiscard]] bool is_news(const Slowest& slowest, Clock::time_point now);

 private:
  std::map<std::int32_t, Clock::time_point> last_;  // by rank, when it was news last
};

}  // namespace hvd::detail
