#include "fusion/identity.hpp"

#include <cstring>
#include <limits>

namespace hvd::detail {
namespace {

template <class T>
T identity(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  switch (op) {
    case ReduceOp::average:
    case ReduceOp::sum:
      return 0;
    case ReduceOp::product:
      return 1;
    case ReduceOp::min:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case ReduceOp::max:
      return Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
  }
  return 0;
}

/// Returns the bits of an identity element in a 16-bit format. Both formats have the sign as their
/// highest bit.
std::uint16_t identity_bits(ReduceOp op, std::uint16_t one, std::uint16_t infinity) {
  switch (op) {
    case ReduceOp::average:
    case ReduceOp::sum:
      return 0;
    case ReduceOp::product:
      return one;
    case ReduceOp::min:
      return infinity;
    case ReduceOp::max:
      return static_cast<std::uint16_t>(infinity | 0x8000U);
  }
  return 0;
}

template <class T>
void fill(std::byte* data, std::int64_t count, T value) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(data + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
  }
}

}  // namespace

void fill_identity(DType dtype, ReduceOp op, std::byte* data, std::int64_t count) {
  switch (dtype) {
    case DType::u8:
      return fill(data, count, identity<std::uint8_t>(op));
    case DType::i8:
      return fill(data, count, identity<std::int8_t>(op));
    case DType::i16:
      return fill(data, count, identity<std::int16_t>(op));
    case DType::i32:
      return fill(data, count, identity<std::int32_t>(op));
    case DType::i64:
      return fill(data, count, identity<std::int64_t>(op));
    case DType::f16:
      return fill(data, count, identity_bits(op, 0x3C00, 0x7C00));
    case DType::bf16:
      return fill(data, count, identity_bits(op, 0x3F80, 0x7F80));
    case DType::f32:
      return fill(data, count, identity<float>(op));
    case DType::f64:
      return fill(data, count, identity<double>(op));
    case DType::boolean: {
      const bool all = op == ReduceOp::min || op == ReduceOp::product;
      return fill(data, count, static_cast<std::uint8_t>(all));
    }
    case DType::c64:  // calls have no complex types
    case DType::c128:
      return;
  }
}

}  // namespace hvd::detail
