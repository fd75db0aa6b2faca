#include "support/samples.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "values.hpp"

namespace hvd::test {
namespace {

double combine(DType dtype, ReduceOp op, double a, double b) {
  if (dtype == DType::boolean) {
    const bool all = op == ReduceOp::min || op == ReduceOp::product;
    return all ? std::min(a, b) : std::max(a, b);
  }
  switch (op) {
    case ReduceOp::average:
    case ReduceOp::sum:
      return a + b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::product:
      return a * b;
  }
  return 0;
}

/// Scales as the engine does: integers are truncated, and a boolean stays what it is.
double scaled(DType dtype, double value, double factor) {
  if (dtype == DType::boolean) return value;
  return is_floating(dtype) ? value * factor : std::trunc(value * factor);
}

}  // namespace

Bytes encode(DType dtype, const std::vector<double>& values) {
  Bytes bytes(values.size() * size_of(dtype));
  std::int64_t index = 0;
  for (const double value : values) store(dtype, bytes.data(), index++, value);
  return bytes;
}

std::vector<double> sample(DType dtype, int rank, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    // No two neighbours and no two ranks follow the same pattern.
    const auto mixed = static_cast<std::uint64_t>(i * 7 + rank * 3 + i * rank % 11);
    if (dtype == DType::boolean) {
      values.push_back(static_cast<double>(mixed % 3 == 0));
    } else if (dtype == DType::u8) {
      values.push_back(static_cast<double>(1 + mixed % 3));
    } else {
      constexpr double kSigned[] = {-2, -1, 1, 2, 3};
      values.push_back(kSigned[mixed % 5]);
    }
  }
  return values;
}

std::vector<double> reduced_sample(DType dtype, ReduceOp op, int ranks, std::int64_t count,
                                   const Scales& scales) {
  std::vector<double> result;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<double> values = sample(dtype, rank, count);
    for (double& value : values) value = scaled(dtype, value, scales.prescale);
    if (rank == 0) {
      result = std::move(values);
      continue;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      result[i] = combine(dtype, op, result[i], values[i]);
    }
  }
  for (double& value : result) {
    if (op == ReduceOp::average) value = scaled(dtype, value, 1.0 / ranks);
    value = scaled(dtype, value, scales.postscale);
  }
  return result;
}

std::int64_t count_wrong(DType dtype, const Bytes& bytes, const std::vector<double>& expected) {
  constexpr double kRoundings = 4;  // the sum, the division, the scale, and a factor in 16 bits
  const auto count = static_cast<std::int64_t>(bytes.size() / size_of(dtype));
  const auto wanted = static_cast<std::int64_t>(expected.size());
  std::int64_t wrong = std::abs(wanted - count);
  for (std::int64_t i = 0; i < std::min(count, wanted); ++i) {
    const double target = expected[static_cast<std::size_t>(i)];
    const double limit = is_floating(dtype)
                             ? kRoundings * unit_roundoff(dtype) * std::max(1.0, std::fabs(target))
                             : 0.0;
    if (!(std::fabs(load(dtype, bytes.data(), i) - target) <= limit)) ++wrong;
  }
  return wrong;
}

}  // namespace hvd::test
