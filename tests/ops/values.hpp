// Elements of every type as doubles, and the values that tests fill tensors with. The conversions
// are written differently from the library's, so that both cannot be wrong in the same way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd::test {

inline constexpr DType kAllDTypes[] = {DType::u8,  DType::i8,     DType::i16,  DType::i32,
                                       DType::i64, DType::f16,    DType::bf16, DType::f32,
                                       DType::f64, DType::boolean};
inline constexpr ReduceOp kAllOps[] = {ReduceOp::average, ReduceOp::sum, ReduceOp::min,
                                       ReduceOp::max, ReduceOp::product};

[[nodiscard]] bool is_floating(DType dtype);
/// Returns half the distance between 1 and the next number: the relative error of one rounding.
[[nodiscard]] double unit_roundoff(DType dtype);
/// Returns the smallest distance between two numbers.
[[nodiscard]] double smallest_step(DType dtype);

[[nodiscard]] double half_to_double(std::uint16_t bits);
[[nodiscard]] double bfloat16_to_double(std::uint16_t bits);
/// Rounds to the nearest number, and ties to even. Numbers that are too large become infinite.
[[nodiscard]] std::uint16_t double_to_half(double value);
[[nodiscard]] std::uint16_t double_to_bfloat16(double value);

/// Returns element `index` of `data`, which may have any alignment. An i64 beyond 2^53 is rounded.
[[nodiscard]] double load(DType dtype, const std::byte* data, std::int64_t index);
[[nodiscard]] std::int64_t load_integer(DType dtype, const std::byte* data, std::int64_t index);
void store(DType dtype, std::byte* data, std::int64_t index, double value);

/// Returns `count` elements that depend on `seed` alone: integers over their whole range, or
/// floating-point numbers between -2 and 2.
[[nodiscard]] std::vector<std::byte> random_values(DType dtype, std::int64_t count,
                                                   std::uint64_t seed);

/// Returns the integer whose bits are the lowest of `value`, as an element of `dtype`.
[[nodiscard]] std::int64_t wrap(DType dtype, std::uint64_t value);

}  // namespace hvd::test
