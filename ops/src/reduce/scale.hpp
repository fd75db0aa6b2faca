// Multiplies inputs and results by factors.
#pragma once

#include <cstdint>

#include <hvd/core/types.hpp>

namespace hvd::detail {

/// Stores src[i] · factor in dst[i]. dst may be src, and both may have any alignment. A factor of 1
/// copies. Integers are scaled in double, truncated toward zero and clamped to their range; f16,
/// bf16 and f32 are scaled in float and rounded to nearest even; a boolean stays true unless factor
/// is 0.
void scale(DType dtype, void* dst, const void* src, std::int64_t count, double factor);

/// Replaces data[i] by data[i] / ranks · postscale, for floating point. It is a true division, so
/// that the mean of equal values is that value; f16 and bf16 are rounded once, after both steps.
void finish_average(DType dtype, void* data, std::int64_t count, int ranks, double postscale);

}  // namespace hvd::detail
