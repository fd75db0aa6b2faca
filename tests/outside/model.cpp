#include "model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace outside {
namespace {

using hvd::DType;
using hvd::OpKind;
using hvd::ReduceOp;

/// Returns the bits of a value that the type represents exactly as a normal number, or of 0.
std::uint16_t half_bits(double value, int exponent_bits) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(value), &exponent);  // in [0.5, 1)
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<unsigned>(std::ldexp(fraction * 2 - 1, mantissa_bits));
  const auto biased = static_cast<unsigned>(exponent - 1 + bias);
  return static_cast<std::uint16_t>((value < 0 ? 0x8000U : 0U) | (biased << mantissa_bits) |
                                    mantissa);
}

/// Returns the value of such bits.
double half_value(std::uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int biased = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = (bits & ((1 << mantissa_bits) - 1)) + (biased > 0 ? 1 << mantissa_bits : 0);
  const double value = std::ldexp(mantissa, std::max(biased, 1) - bias - mantissa_bits);
  return (bits & 0x8000) != 0 ? -value : value;
}

template <class T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

double decode(DType real, const std::byte* from) {
  switch (real) {
    case DType::f16:
      return half_value(get<std::uint16_t>(from), 5);
    case DType::bf16:
      return half_value(get<std::uint16_t>(from), 8);
    case DType::f32:
      return get<float>(from);
    default:
      return get<double>(from);
  }
}

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

void encode(DType real, double value, std::byte* to) {
  switch (real) {
    case DType::u8:
      return put(to, static_cast<std::uint8_t>(value));
    case DType::i8:
      return put(to, static_cast<std::int8_t>(value));
    case DType::i16:
      return put(to, static_cast<std::int16_t>(value));
    case DType::i32:
      return put(to, static_cast<std::int32_t>(value));
    case DType::i64:
      return put(to, static_cast<std::int64_t>(value));
    case DType::f16:
      return put(to, half_bits(value, 5));
    case DType::bf16:
      return put(to, half_bits(value, 8));
    case DType::f32:
      return put(to, static_cast<float>(value));
    case DType::boolean:
      return put(to, static_cast<std::uint8_t>(value != 0));
    default:
      return put(to, value);
  }
}

int mantissa_bits(DType real) {
  switch (real) {
    case DType::bf16:
      return 7;
    case DType::f16:
      return 10;
    case DType::f32:
      return 23;
    default:
      return 52;
  }
}

/// Returns a number from 1/16 to just below 16, or its negative, whose significand has random bits.
double inexact_number(DType dtype, std::uint64_t key) {
  const std::uint64_t bits = mix(key, 1);
  const auto fraction = static_cast<double>((bits >> 12) >> (52 - mantissa_bits(dtype)));
  const double value =
      std::ldexp(1 + std::ldexp(fraction, -mantissa_bits(dtype)), static_cast<int>(bits & 7U) - 4);
  return (bits & 8U) != 0 ? -value : value;
}

/// Returns the i-th number of a rank. Except in inexact operations it is so small that eight of
/// them can be reduced exactly.
double number(const Op& op, std::uint64_t salt, int rank, std::int64_t i) {
  const std::uint64_t key = (static_cast<std::uint64_t>(i) + salt) * 0x9e3779b97f4a7c15ULL +
                            static_cast<std::uint64_t>(rank) * 0xd1b54a32d192ed03ULL;
  if (op.inexact) return inexact_number(op.dtype, key);
  const auto bits = static_cast<unsigned>((key ^ (key >> 29)) >> 11) & 0xffU;
  if (op.dtype == DType::boolean) return bits & 1U;
  const bool negative = op.dtype != DType::u8 && (bits & 8U) != 0;
  if (op.op == ReduceOp::product) {
    const double factor = rank < 6 ? 1 + (bits & 1U) : 1;
    return negative ? -factor : factor;
  }
  const double value = bits & 7U;
  return negative && value > 0 ? -value : value;  // the sign of a zero may depend on the order
}

double reduce(const Op& op, double a, double b) {
  const bool boolean = op.dtype == DType::boolean;
  switch (op.op) {
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::product:
      return a * b;
    default:
      return boolean ? std::max(a, b) : a + b;
  }
}

}  // namespace

std::int64_t rows(const Op& op, std::uint64_t salt, int from, int to) {
  const auto key = mix(salt, static_cast<std::uint64_t>(from * 64 + to));
  return static_cast<std::int64_t>(key % static_cast<std::uint64_t>(op.count + 1));
}

hvd::Bytes contribution(const Op& op, std::uint64_t salt, int rank) {
  std::int64_t count = op.count;
  if (op.kind == OpKind::allgather) count = rows(op, salt, rank);
  if (op.kind == OpKind::alltoall) {
    count = 0;
    for (const int to : op.ranks) count += rows(op, salt, rank, to);
  }
  const DType real = hvd::real_of(op.dtype);
  const std::int64_t reals = count * hvd::reals_per_element(op.dtype);
  const std::size_t size = hvd::size_of(real);
  hvd::Bytes bytes(static_cast<std::size_t>(reals) * size);
  for (std::int64_t i = 0; i < reals; ++i) {
    encode(real, number(op, salt, rank, i), bytes.data() + static_cast<std::size_t>(i) * size);
  }
  return bytes;
}

hvd::Bytes result(const Op& op, std::uint64_t salt, int rank, std::span<const int> contributors,
                  std::int64_t divisor) {
  if (op.kind == OpKind::broadcast) return contribution(op, salt, op.root);
  const std::size_t element = hvd::size_of(op.dtype);
  hvd::Bytes bytes;
  if (op.kind == OpKind::allgather || op.kind == OpKind::alltoall) {
    for (const int from : op.ranks) {
      const hvd::Bytes theirs = contribution(op, salt, from);
      auto begin = theirs.begin();
      auto end = theirs.end();
      if (op.kind == OpKind::alltoall) {
        for (const int to : op.ranks) {
          if (to >= rank) break;
          begin += static_cast<std::ptrdiff_t>(element) * rows(op, salt, from, to);
        }
        end = begin + static_cast<std::ptrdiff_t>(element) * rows(op, salt, from, rank);
      }
      bytes.insert(bytes.end(), begin, end);
    }
    return bytes;
  }
  std::int64_t first = 0;
  std::int64_t count = op.count;
  if (op.kind == OpKind::reducescatter) {
    const auto size = std::ssize(op.ranks);
    const auto index = std::ranges::find(op.ranks, rank) - op.ranks.begin();
    first = index * (op.count / size) + std::min<std::int64_t>(index, op.count % size);
    count = op.count / size + (index < op.count % size ? 1 : 0);
  }
  const DType real = hvd::real_of(op.dtype);
  const std::int64_t reals = hvd::reals_per_element(op.dtype);
  const std::size_t size = hvd::size_of(real);
  bytes.resize(static_cast<std::size_t>(count * reals) * size);
  for (std::int64_t i = 0; i < count * reals; ++i) {
    double value = 0;
    bool none = true;
    for (const int from : contributors) {
      const double theirs = number(op, salt, from, first * reals + i) * op.prescale;
      value = none ? theirs : reduce(op, value, theirs);
      none = false;
    }
    if (op.op == ReduceOp::average && op.dtype != DType::boolean) {
      value /= static_cast<double>(divisor);
      if (hvd::is_integer(op.dtype)) value = std::trunc(value);
    }
    encode(real, value * op.postscale, bytes.data() + static_cast<std::size_t>(i) * size);
  }
  return bytes;
}

bool is_near(const Op& op, std::uint64_t salt, const hvd::Bytes& sums) {
  const std::size_t size = hvd::size_of(op.dtype);
  const double rounding = std::ldexp(1, -1 - mantissa_bits(op.dtype));
  if (sums.size() != static_cast<std::size_t>(op.count) * size) return false;
  for (std::int64_t i = 0; i < op.count; ++i) {
    double sum = 0;
    double magnitude = 0;
    for (const int from : op.ranks) {
      const double theirs = number(op, salt, from, i);
      sum += theirs;
      magnitude += std::abs(theirs);
    }
    const double got = decode(op.dtype, sums.data() + static_cast<std::size_t>(i) * size);
    // Each addition of the operation, and of this sum, rounds by at most this part of a partial
    // sum, none of which is larger than the sum of the magnitudes and what was rounded before.
    const double most = 2.5 * static_cast<double>(op.ranks.size()) * rounding * magnitude;
    if (!(std::abs(got - sum) <= most)) return false;
  }
  return true;
}

}  // namespace outside
