// Computes the exact mean of integers, whose own type may not hold their sum.
#pragma once

#include <cstdint>

#include <hvd/core/types.hpp>

namespace hvd::detail {

/// Returns the number of 64-bit values as which an element is reduced, so that sums cannot
/// overflow: one for an integer, and two for an i64, namely its quotient and remainder by the
/// number of ranks.
[[nodiscard]] int mean_lanes(DType dtype) noexcept;

/// Stores prescale · src in `wide`, `mean_lanes` values per element. The wide arrays of the ranks
/// are added as i64.
void widen_for_mean(DType dtype, std::int64_t* wide, const void* src, std::int64_t count, int ranks,
                    double prescale);

/// Stores postscale · (sum / ranks) in `dst`; the quotient and the product are truncated toward
/// zero.
void narrow_mean(DType dtype, void* dst, const std::int64_t* wide, std::int64_t count, int ranks,
                 double postscale);

}  // namespace hvd::detail
