// The one place where element types and reduce operations meet.
#pragma once

#include <cstdint>

#include <hvd/core/types.hpp>

namespace hvd {

/// dst[i] = a[i] op b[i], `count` elements, any alignment; dst may be a. `average` adds: dividing
/// is `finish_average`'s. What docs/engine.md promises, the same in every lane and on every CPU:
/// integers wrap; f16 and bf16 are computed in float and rounded to nearest even; a NaN operand
/// wins a min or max, the one of `a` when both are; boolean sum and max are or, product and min
/// and.
void reduce(DType dtype, ReduceOp op, void* dst, const void* a, const void* b, std::int64_t count);

}  // namespace hvd
