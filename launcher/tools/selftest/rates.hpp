// How fast the ranks reach each other.
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

/// Up to 8 ranks: all pairs of them. More: the first ranks of all pairs of hosts, and on each host
/// its first two ranks; at most `kMostPairs`, beyond that hosts that follow each other. Pure.
[[nodiscard]] std::vector<Pair> pairs_to_measure(const Topology& topology);
inline constexpr std::size_t kMostPairs = 200;

/// Collective; one pair at a time, the others wait. The same result on all ranks.
[[nodiscard]] std::vector<PairRate> measure_pairs(Context& context);

struct AllreduceRate {
  double seconds_small = 0;     ///< of four bytes, the median
  double bytes_per_second = 0;  ///< of 16 MiB, its size over the best time
};
/// Collective. The same result on all ranks.
[[nodiscard]] AllreduceRate measure_allreduce(Context& context);

}  // namespace hvd::selftest
