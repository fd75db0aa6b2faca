// Reduces two arrays, for all element types and reduce operations.
#pragma once

#include <cstdint>

#include <hvd/core/types.hpp>

namespace hvd::detail {

/// Stores a[i] op b[i] in dst[i] for `count` elements of any alignment; dst may be a. An average is
/// a sum here, which `finish_average` divides. The result is the same in every SIMD lane and on
/// every CPU, as docs/internals/engine.md promises: integers wrap; f16 and bf16 are computed in
/// float and rounded to nearest even; a min or max with a NaN is that NaN, the one of `a` when both
/// are; boolean sum and max are or, and boolean product and min are and.
void reduce(DType dtype, ReduceOp op, void* dst, const void* a, const void* b, std::int64_t count);

}  // namespace hvd::detail
