// Measures how fast data travels between the ranks.
#pragma once

#include <vector>

#include <hvd/hvd.hpp>

namespace hvd::selftest {

struct Pair {
  int from = 0;
  int to = 0;

  friend bool operator==(const Pair&, const Pair&) = default;
};

struct PairRate {
  Pair pair;
  double bytes_per_second = 0;
};

/// Returns all pairs when there are up to 8 ranks. For more ranks it returns the first two ranks of
/// each host, and the first ranks of each two hosts, or only of each host and the next one where
/// there are many hosts. There are at most `kMostPairs` pairs.
[[nodiscard]] std::vector<Pair> pairs_to_measure(const Topology& topology);
inline constexpr std::size_t kMostPairs = 200;

/// Collective. Measures one pair at a time while the others wait. Returns the same result on all
/// ranks.
[[nodiscard]] std::vector<PairRate> measure_pairs(Context& context);

struct AllreduceRate {
  double seconds_small = 0;     ///< of four bytes, the median
  double bytes_per_second = 0;  ///< of 16 MiB, its size over the best time
};
/// Collective. Returns the same result on all ranks.
[[nodiscard]] AllreduceRate measure_allreduce(Context& context);

}  // namespace hvd::selftest
