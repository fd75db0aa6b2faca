// The source of every choice of a run, so that a seed determines a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <hvd/core/internal/splitmix64.hpp>

namespace hvd::sim {

/// SplitMix64 (Steele, Lea & Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * kGoldenRatio64 + 0x1234567) {}

  std::uint64_t next() { return splitmix64(state_ += kGoldenRatio64); }
  /// Includes both ends.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  int number(int low, int high) { return static_cast<int>(between(low, high)); }
  bool chance(int percent) { return next() % 100 < static_cast<std::uint64_t>(percent); }
  /// Draws mostly values near `low` and sometimes near `high`, with equal probability for each
  /// order of magnitude.
  std::int64_t spread(std::int64_t low, std::int64_t high) {
    int doublings = 0;
    while (doublings < 62 && (low << (doublings + 1)) <= high) ++doublings;
    const std::int64_t scaled = low << between(0, doublings);
    return between(scaled, scaled < high / 2 ? 2 * scaled : high);
  }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[next() % i]);
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace hvd::sim
