// The exact mean of integers, which their own type cannot hold the sum for.
#pragma once

#include <cstdint>

#include <hvd/core/types.hpp>

namespace hvd {

[[nodiscard]] bool is_integer(DType dtype) noexcept;

/// Sums that cannot overflow: an integer travels as one 64-bit lane, an i64 as two, its quotient
/// and remainder by the number of ranks, each of which can be added up safely.
[[nodiscard]] int mean_lanes(DType dtype) noexcept;

/// wide = prescale · src, `mean_lanes` lanes an element; add the ranks' wide arrays as i64.
void widen_for_mean(DType dtype, std::int64_t* wide, const void* src, std::int64_t count, int ranks,
                    double prescale);

/// dst = postscale · (sum / ranks), truncated toward zero.
void narrow_mean(DType dtype, void* dst, const std::int64_t* wide, std::int64_t count, int ranks,
                 double postscale);

}  // namespace hvd
