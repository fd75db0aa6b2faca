// Provides the identity element of a reduction, which a rank without data contributes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hvd/core/types.hpp>

namespace hvd::detail {

/// Stores `count` elements that change no result: 0 for a sum, 1 for a product, the largest value
/// (infinity for floating point) for a min, the lowest for a max, and booleans accordingly. `data`
/// may have any alignment.
void fill_identity(DType dtype, ReduceOp op, std::byte* data, std::int64_t count);

}  // namespace hvd::detail
