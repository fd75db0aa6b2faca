// Declares the types that all libraries share: element types, reduce operations, operation kinds,
// devices.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

/// `c64` and `c128` are complex numbers: pairs of f32 or f64, first the real part.
enum class DType : std::uint8_t { u8, i8, i16, i32, i64, f16, bf16, f32, f64, boolean, c64, c128 };
inline constexpr int kDTypeCount = 12;

using Bytes = std::vector<std::byte>;

/// `average` divides the sum by the number of ranks; integers divide the exact sum, truncating
/// toward zero. On `boolean`, sum and max are logical or, min and product logical and. Complex
/// numbers have `average` and `sum` only.
enum class ReduceOp : std::uint8_t { average, sum, min, max, product };
inline constexpr int kReduceOpCount = 5;

enum class OpKind : std::uint8_t {
  allreduce,
  allgather,
  broadcast,
  reducescatter,
  alltoall,
  barrier,
  join,  ///< this rank has no more data
  add_process_set,
  remove_process_set,
};
inline constexpr int kOpKindCount = 9;

/// Tells whether an operation has a reduce operation and scales.
[[nodiscard]] constexpr bool reduces(OpKind kind) noexcept {
  return kind == OpKind::allreduce || kind == OpKind::reducescatter;
}

/// Tells whether ranks may contribute different numbers of rows (allgather, alltoall).
[[nodiscard]] constexpr bool needs_rows(OpKind kind) noexcept {
  return kind == OpKind::allgather || kind == OpKind::alltoall;
}

struct Device {
  enum class Kind : std::uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  std::int32_t index = 0;  ///< in the numbering of this process; -1 for the device of this rank

  friend bool operator==(const Device&, const Device&) = default;
};

/// Holds the sizes of the dimensions, outermost first; it is empty for a scalar.
using Shape = std::vector<std::int64_t>;

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

/// Returns true for the integers. A type is an integer, a floating-point number, boolean or
/// complex.
[[nodiscard]] constexpr bool is_integer(DType dtype) noexcept { return dtype <= DType::i64; }
/// Returns true for f16 to f64.
[[nodiscard]] constexpr bool is_floating_point(DType dtype) noexcept {
  return dtype >= DType::f16 && dtype <= DType::f64;
}
/// Returns true for c64 and c128.
[[nodiscard]] constexpr bool is_complex(DType dtype) noexcept { return dtype >= DType::c64; }
/// Returns the type of a complex number's two parts; other types as they are.
[[nodiscard]] constexpr DType real_of(DType dtype) noexcept {
  if (!is_complex(dtype)) return dtype;
  return dtype == DType::c64 ? DType::f32 : DType::f64;
}
/// Returns how many elements of `real_of(dtype)` one element consists of.
[[nodiscard]] constexpr std::int64_t reals_per_element(DType dtype) noexcept {
  return is_complex(dtype) ? 2 : 1;
}

/// Returns the size of one element in bytes.
[[nodiscard]] std::size_t size_of(DType dtype) noexcept;
/// Returns the product of the dimensions, which is 1 for a scalar.
[[nodiscard]] std::int64_t element_count(const Shape& shape) noexcept;
/// Return the names of the values of this file, as "f32" and "average", devices as "cuda:1" and
/// shapes as "[2,3]".
[[nodiscard]] std::string_view to_string(DType dtype) noexcept;
[[nodiscard]] std::string_view to_string(ReduceOp op) noexcept;
[[nodiscard]] std::string_view to_string(OpKind kind) noexcept;
[[nodiscard]] std::string to_string(Device device);
[[nodiscard]] std::string to_string(const Shape& shape);

}  // namespace hvd
