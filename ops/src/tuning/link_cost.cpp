#include "tuning/link_cost.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tuning/measure.hpp"

namespace hvd::detail {
namespace {

constexpr std::size_t kFew = 4;
constexpr std::size_t kMany = 256 * kKi;  // large enough for the ring to be used

int doubling_turns(int ranks) { return std::bit_width(static_cast<unsigned>(ranks - 1)); }
int ring_turns(int ranks) { return 2 * (ranks - 1); }

/// Returns the bytes that a ring sends over each link in an allreduce of `bytes`.
double ring_bytes(double bytes, int ranks) { return bytes * ring_turns(ranks) / ranks; }

std::size_t power_of_two(double value, std::size_t least, std::size_t most) {
  const double bounded = std::clamp(value, static_cast<double>(least), static_cast<double>(most));
  return std::bit_floor(static_cast<std::size_t>(bounded));
}

}  // namespace

LinkCost measure_link(Backend& group, int ranks, bool decides, Deadline deadline) {
  const double few = time_allreduce(group, decides, kFew, deadline);
  const double many = time_allreduce(group, decides, kMany, deadline);
  LinkCost cost{.latency_us = few / doubling_turns(ranks)};
  const double bytes = ring_bytes(static_cast<double>(kMany), ranks);
  // Noise may reduce the difference to nothing.
  const double time = std::max(many - cost.latency_us * ring_turns(ranks), many / 10);
  cost.bytes_per_us = bytes / std::max(time, 1.0);
  return cost;
}

AlgorithmTable ring_table(const LinkCost& cost, int ranks) {
  constexpr std::size_t kLeast = kKi;
  std::size_t bytes = kMostByDoubling;
  if (ranks > 2) {  // two ranks send the same bytes with both algorithms
    const double turns = ring_turns(ranks) - doubling_turns(ranks);
    bytes = power_of_two(turns * cost.latency_us * cost.bytes_per_us / (1.0 - 2.0 / ranks), kLeast,
                         kMostByDoubling);
  }
  return AlgorithmTable(Algorithm::doubling).from(bytes + 1, Algorithm::ring);
}

std::size_t segment_for(const LinkCost& cost, int hosts) {
  constexpr double kPart = 1.0 / 32;
  constexpr double kHandOvers = 60;  // µs, from one thread to another and back
  const double overhead = ring_turns(hosts) * cost.latency_us + kHandOvers;
  const double bytes = overhead / kPart * cost.bytes_per_us;  // what a link carries in that time
  return power_of_two(bytes / ring_bytes(1, hosts), kKi * kKi, 8 * kKi * kKi);
}

}  // namespace hvd::detail
