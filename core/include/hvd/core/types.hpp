// The vocabulary shared by every room: element types, reduce operations, operation kinds, devices.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

enum class DType : std::uint8_t { u8, i8, i16, i32, i64, f16, bf16, f32, f64, boolean };
inline constexpr int kDTypeCount = 10;

/// `average` divides the sum by the number of ranks; integers divide the exact sum, truncating
/// toward zero. On `boolean`, sum and max are logical or, min and product logical and.
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

/// Whether it has a reduce operation and scales.
[[nodiscard]] constexpr bool reduces(OpKind kind) noexcept {
  return kind == OpKind::allreduce || kind == OpKind::reducescatter;
}

/// Whether ranks may bring different numbers of rows (allgather, alltoall).
[[nodiscard]] constexpr bool needs_rows(OpKind kind) noexcept {
  return kind == OpKind::allgather || kind == OpKind::alltoall;
}

struct Device {
  enum class Kind : std::uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  std::int32_t index = 0;  ///< as this process counts them; -1: the one that this rank works with

  friend bool operator==(const Device&, const Device&) = default;
};

/// Sizes of the dimensions, outermost first; empty for a scalar.
using Shape = std::vector<std::int64_t>;

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

/// Bytes of one element.
[[nodiscard]] std::size_t size_of(DType dtype) noexcept;
/// Product of the dimensions; 1 for a scalar.
[[nodiscard]] std::int64_t element_count(const Shape& shape) noexcept;
/// As they are called here, "f32", "average"; devices as "cuda:1", shapes as "[2,3]".
[[nodiscard]] std::string_view to_string(DType dtype) noexcept;
[[nodiscard]] std::string_view to_string(ReduceOp op) noexcept;
[[nodiscard]] std::string_view to_string(OpKind kind) noexcept;
[[nodiscard]] std::string to_string(Device device);
[[nodiscard]] std::string to_string(const Shape& shape);

}  // namespace hvd
