// Stores and reads numbers as elements of any type.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hvd/core/types.hpp>

namespace hvd::bench {

/// `value` is a small integer, which every type holds exactly; a boolean holds value != 0.
void store(DType dtype, std::byte* data, std::int64_t index, int value);
[[nodiscard]] double load(DType dtype, const std::byte* data, std::int64_t index);
/// Returns the relative error of a rounded quotient; 0 for integers.
[[nodiscard]] double tolerance(DType dtype);

}  // namespace hvd::bench
