#include "values.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <hvd/core/internal/splitmix64.hpp>

namespace hvd::test {
namespace {

template <class T>
T at(const std::byte* data, std::int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void put(std::byte* data, std::int64_t index, T value) {
  std::memcpy(data + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

/// Decodes a number of a format with these widths, by the definition of IEEE 754.
double decode(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

/// All numbers of a format, by their bits.
struct Format {
  Format(int exponent_bits, int mantissa_bits)
      : infinity(static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits)),
        values(65536) {
    for (std::size_t bits = 0; bits < values.size(); ++bits) {
      values[bits] = decode(static_cast<std::uint16_t>(bits), exponent_bits, mantissa_bits);
    }
  }

  /// Searches the non-negative numbers, which are in the order of their bits.
  [[nodiscard]] std::uint16_t nearest(double value) const {
    const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return static_cast<std::uint16_t>(infinity + 1);
    const double magnitude = std::fabs(value);
    const auto end = values.begin() + infinity;
    const auto above =
        static_cast<std::size_t>(std::upper_bound(values.begin(), end, magnitude) - values.begin());
    const std::size_t below = above - 1;
    // In place of infinity, this is the number that would follow the largest finite one.
    const double high = above == infinity ? 2 * values[below] - values[below - 1] : values[above];
    const double middle = values[below] + (high - values[below]) / 2;
    const bool up = magnitude > middle || (magnitude == middle && below % 2 == 1);
    return static_cast<std::uint16_t>(sign | (up ? above : below));
  }

  std::uint16_t infinity;
  std::vector<double> values;
};

const Format& half() {
  static const Format format(5, 10);
  return format;
}

const Format& bfloat16() {
  static const Format format(8, 7);
  return format;
}

}  // namespace

bool is_floating(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
    case DType::f32:
      return 0x1p-24;
    case DType::f64:
      return 0x1p-53;
    default:
      return 0;
  }
}

double smallest_step(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-24;
    case DType::bf16:
      return 0x1p-133;
    case DType::f32:
      return 0x1p-149;
    case DType::f64:
      return 0x1p-1074;
    default:
      return 0;
  }
}

double half_to_double(std::uint16_t bits) { return half().values[bits]; }
double bfloat16_to_double(std::uint16_t bits) { return bfloat16().values[bits]; }
std::uint16_t double_to_half(double value) { return half().nearest(value); }
std::uint16_t double_to_bfloat16(double value) { return bfloat16().nearest(value); }

std::int64_t load_integer(DType dtype, const std::byte* data, std::int64_t index) {
  switch (dtype) {
    case DType::i8:
      return at<std::int8_t>(data, index);
    case DType::i16:
      return at<std::int16_t>(data, index);
    case DType::i32:
      return at<std::int32_t>(data, index);
    case DType::i64:
      return at<std::int64_t>(data, index);
    default:
      return at<std::uint8_t>(data, index);
  }
}

double load(DType dtype, const std::byte* data, std::int64_t index) {
  switch (dtype) {
    case DType::f16:
      return half_to_double(at<std::uint16_t>(data, index));
    case DType::bf16:
      return bfloat16_to_double(at<std::uint16_t>(data, index));
    case DType::f32:
      return at<float>(data, index);
    case DType::f64:
      return at<double>(data, index);
    default:
      return static_cast<double>(load_integer(dtype, data, index));
  }
}

void store(DType dtype, std::byte* data, std::int64_t index, double value) {
  switch (dtype) {
    case DType::u8:
      return put(data, index, static_cast<std::uint8_t>(value));
    case DType::i8:
      return put(data, index, static_cast<std::int8_t>(value));
    case DType::i16:
      return put(data, index, static_cast<std::int16_t>(value));
    case DType::i32:
      return put(data, index, static_cast<std::int32_t>(value));
    case DType::i64:
      return put(data, index, static_cast<std::int64_t>(value));
    case DType::f16:
      return put(data, index, double_to_half(value));
    case DType::bf16:
      return put(data, index, double_to_bfloat16(value));
    case DType::f32:
      return put(data, index, static_cast<float>(value));
    case DType::f64:
      return put(data, index, value);
    case DType::boolean:
      return put(data, index, static_cast<std::uint8_t>(value != 0));
    case DType::c64:  // backends are not called with complex types
    case DType::c128:
      return;
  }
}

std::vector<std::byte> random_values(DType dtype, std::int64_t count, std::uint64_t seed) {
  std::vector<std::byte> data(static_cast<std::size_t>(count) * size_of(dtype));
  auto random = [state = seed * kGoldenRatio64]() mutable {
    return splitmix64(state += kGoldenRatio64);
  };
  if (dtype == DType::f16 || dtype == DType::bf16) {  // by their bits: rounding would take long
    const int mantissa_bits = dtype == DType::f16 ? 10 : 7;
    const unsigned exponent = dtype == DType::f16 ? 11 : 123;  // from 2^-4 …
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint64_t bits = random();
      const auto magnitude = ((exponent + (bits >> 32) % 5) << mantissa_bits) |  // … to below 2
                             (bits & ((1U << mantissa_bits) - 1));
      put(data.data(), i, static_cast<std::uint16_t>(magnitude | (bits >> 63 << 15)));
    }
  } else if (is_floating(dtype)) {
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = static_cast<double>(static_cast<std::int64_t>(random())) * 0x1p-62;
      if (dtype == DType::f64) {
        put(data.data(), i, value);
      } else {
        put(data.data(), i, static_cast<float>(value));
      }
    }
  } else {
    std::generate(data.begin(), data.end(), [&] { return std::byte(random() >> 56); });
    if (dtype == DType::boolean) {
      for (std::byte& value : data) value &= std::byte{1};
    }
  }
  return data;
}

std::int64_t wrap(DType dtype, std::uint64_t value) {
  switch (dtype) {
    case DType::u8:
      return static_cast<std::uint8_t>(value);
    case DType::i8:
      return static_cast<std::int8_t>(value);
    case DType::i16:
      return static_cast<std::int16_t>(value);
    case DType::i32:
      return static_cast<std::int32_t>(value);
    default:
      return static_cast<std::int64_t>(value);
  }
}

}  // namespace hvd::test
