// How long at least one of several threads was at something.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd::observe {

/// The measure of the union of the intervals added so far; it never shrinks. Exact while an
/// interval overlaps none but the latest `kRemembered` separate ones. One thread at a time.
class IntervalUnion {
 public:
  static constexpr std::size_t kRemembered = 64;

  /// Empty or reversed intervals count nothing.
  void add(Clock::time_point begin, Clock::time_point end);
  [[nodiscard]] std::chrono::nanoseconds total() const noexcept { return total_; }

 private:
  struct Interval {
    Clock::time_point begin;
    Clock::time_point end;
  };

  std::vector<Interval> recent_;  // disjoint, ascending
  std::chrono::nanoseconds total_{0};
};

}  // namespace hvd::observe
