#include "elements.hpp"

#include <bit>
#include <cmath>
#include <cstring>

namespace hvd::bench {
namespace {

std::uint16_t half_of(int value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double mantissa = std::frexp(std::abs(value), &exponent);
  const auto fraction = static_cast<unsigned>(std::ldexp(mantissa, 11)) & 0x3FFU;
  const unsigned sign = value < 0 ? 0x8000U : 0U;
  return static_cast<std::uint16_t>(sign | static_cast<unsigned>(exponent + 14) << 10U | fraction);
}

double from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const int fraction = bits & 0x3FF;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

std::uint16_t bfloat16_of(int value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16U);
}

double from_bfloat16(std::uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(std::uint32_t{bits} << 16U));
}

template <class T>
void put(std::byte* data, std::int64_t index, T value) {
  std::memcpy(data + static_cast<std::size_t>(index) * sizeof value, &value, sizeof value);
}

template <class T>
T get(const std::byte* data, std::int64_t index) {
  T value;
  std::memcpy(&value, data + static_cast<std::size_t>(index) * sizeof value, sizeof value);
  return value;
}

}  // namespace

void store(DType dtype, std::byte* data, std::int64_t index, int value) {
  switch (dtype) {
    case DType::u8:
      return put(data, index, static_cast<std::uint8_t>(value));
    case DType::i8:
      return put(data, index, static_cast<std::int8_t>(value));
    case DType::i16:
      return put(data, index, static_cast<std::int16_t>(value));
    case DType::i32:
      return put(data, index, std::int32_t{value});
    case DType::i64:
      return put(data, index, std::int64_t{value});
    case DType::f16:
      return put(data, index, half_of(value));
    case DType::bf16:
      return put(data, index, bfloat16_of(value));
    case DType::f32:
      return put(data, index, static_cast<float>(value));
    case DType::f64:
      return put(data, index, static_cast<double>(value));
    case DType::boolean:
      return put(data, index, static_cast<std::uint8_t>(value != 0));
    case DType::c64:  // the options have no complex types
    case DType::c128:
      return;
  }
}

double load(DType dtype, const std::byte* data, std::int64_t index) {
  switch (dtype) {
    case DType::u8:
    case DType::boolean:
      return get<std::uint8_t>(data, index);
    case DType::i8:
      return get<std::int8_t>(data, index);
    case DType::i16:
      return get<std::int16_t>(data, index);
    case DType::i32:
      return get<std::int32_t>(data, index);
    case DType::i64:
      return static_cast<double>(get<std::int64_t>(data, index));
    case DType::f16:
      return from_half(get<std::uint16_t>(data, index));
    case DType::bf16:
      return from_bfloat16(get<std::uint16_t>(data, index));
    case DType::f32:
      return static_cast<double>(get<float>(data, index));
    case DType::f64:
      return get<double>(data, index);
    case DType::c64:
    case DType::c128:
      break;
  }
  return 0;
}

double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    case DType::f32:
      return 0x1p-22;
    case DType::f64:
      return 0x1p-51;
    default:
      return 0;
  }
}

}  // namespace hvd::bench
