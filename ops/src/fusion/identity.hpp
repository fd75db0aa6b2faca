// What a rank without data puts into a reduction.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hvd/core/types.hpp>

namespace hvd {

/// `count` elements that change nobody's result: 0 of a sum, 1 of a product, the largest value (of
/// floating point: infinity) of a min, the lowest of a max; booleans accordingly. Any alignment.
void fill_identity(DType dtype, ReduceOp op, std::byte* data, std::int64_t count);

}  // namespace hvd
