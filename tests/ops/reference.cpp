#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <gtest/gtest.h>

#include "values.hpp"

namespace hvd::test {
namespace {

using Buffer = std::vector<std::byte>;

/// Returns the smallest or the largest integer that a type holds.
std::int64_t limit_of(DType dtype, bool largest) {
  const int bits = static_cast<int>(8 * size_of(dtype));
  if (dtype == DType::u8) return largest ? 255 : 0;
  const std::uint64_t half = std::uint64_t{1} << (bits - 1);
  return static_cast<std::int64_t>(largest ? half - 1 : ~half + 1);
}

/// Returns the product in double, cut toward zero and to the range of the type.
std::int64_t scaled_integer(DType dtype, std::int64_t value, double factor) {
  if (factor == 1.0) return value;
  if (dtype == DType::boolean) return factor == 0.0 ? 0 : value;
  const double product = std::trunc(static_cast<double>(value) * factor);
  // The largest i64 is not a double and becomes the next one, which is beyond the range itself.
  if (product >= static_cast<double>(limit_of(dtype, true))) return limit_of(dtype, true);
  if (product <= static_cast<double>(limit_of(dtype, false))) return limit_of(dtype, false);
  return static_cast<std::int64_t>(product);
}

std::int64_t reduced_integer(const Operation& operation, const std::vector<Buffer>& contributions,
                             std::int64_t i) {
  const auto& [dtype, op, prescale, postscale, divisor] = operation;
  const auto contributed = [&, type = dtype, factor = prescale](const Buffer& contribution) {
    return scaled_integer(type, load_integer(type, contribution.data(), i), factor);
  };
  std::int64_t least = contributed(contributions[0]);
  std::int64_t largest = least;
  std::uint64_t sum = 0;
  std::uint64_t product = 1;
  __extension__ __int128 exact = 0;
  for (const Buffer& contribution : contributions) {
    const std::int64_t value = contributed(contribution);
    least = std::min(least, value);
    largest = std::max(largest, value);
    sum += static_cast<std::uint64_t>(value);
    product *= static_cast<std::uint64_t>(value);
    exact += value;
  }
  const bool boolean = dtype == DType::boolean;
  std::int64_t result = 0;
  switch (op) {
    case ReduceOp::average:
      result = static_cast<std::int64_t>(exact / divisor);
      break;
    case ReduceOp::sum:
      result = boolean ? largest : wrap(dtype, sum);
      break;
    case ReduceOp::min:
      result = least;
      break;
    case ReduceOp::max:
      result = largest;
      break;
    case ReduceOp::product:
      result = boolean ? least : wrap(dtype, product);
      break;
  }
  return scaled_integer(dtype, result, postscale);
}

struct Bounded {
  long double value = 0;
  long double error = 0;
};

Bounded reduced_float(const Operation& operation, const std::vector<Buffer>& contributions,
                      std::int64_t i) {
  const auto& [dtype, op, prescale, postscale, divisor] = operation;
  const double u = unit_roundoff(dtype);
  const auto roundings = static_cast<double>(contributions.size() - 1);
  std::optional<long double> reduced;
  long double magnitude = 0;
  long double growth = 1;  // of what a product lost when it was next to zero
  for (const Buffer& contribution : contributions) {
    const long double x = load(dtype, contribution.data(), i) * prescale;
    if (std::isfinite(x)) magnitude += std::fabs(x);
    if (op == ReduceOp::product) growth *= std::max(1.0L, std::fabs(x));
    if (!reduced) {
      reduced = x;
    } else if (op == ReduceOp::min) {
      reduced = std::min(*reduced, x);
    } else if (op == ReduceOp::max) {
      reduced = std::max(*reduced, x);
    } else if (op == ReduceOp::product) {
      reduced = *reduced * x;
    } else {
      reduced = *reduced + x;
    }
  }
  Bounded result{*reduced, 0};
  const bool sums = op == ReduceOp::sum || op == ReduceOp::average;
  if (sums) result.error = roundings * u * magnitude;
  if (op == ReduceOp::product) result.error = roundings * u * std::fabs(result.value);
  if (prescale != 1.0 || postscale != 1.0) result.error += 4 * u * magnitude;
  if (op == ReduceOp::average) {
    result.value /= divisor;
    result.error = result.error / divisor + u * std::fabs(result.value);
  }
  result.value *= postscale;
  result.error = 1.05L * result.error * std::fabs(postscale) +
                 growth * static_cast<double>(contributions.size()) * smallest_step(dtype);
  return result;
}

}  // namespace

void expect_reduced(const Operation& operation, const std::vector<Buffer>& contributions,
                    const Buffer& result) {
  ASSERT_EQ(result.size(), contributions[0].size());
  const auto count = static_cast<std::int64_t>(result.size() / size_of(operation.dtype));
  for (std::int64_t i = 0; i < count; ++i) {
    if (!is_floating(operation.dtype)) {
      ASSERT_EQ(load_integer(operation.dtype, result.data(), i),
                reduced_integer(operation, contributions, i))
          << to_string(operation.dtype) << ' ' << to_string(operation.op) << ", element " << i;
      continue;
    }
    const Bounded wanted = reduced_float(operation, contributions, i);
    // They are compared in long double, because rounding to double could move them apart.
    const long double found = load(operation.dtype, result.data(), i);
    if (std::fabs(found - wanted.value) <= wanted.error) continue;
    ASSERT_NEAR(load(operation.dtype, result.data(), i), static_cast<double>(wanted.value),
                static_cast<double>(wanted.error))
        << to_string(operation.dtype) << ' ' << to_string(operation.op) << ", element " << i;
  }
}

}  // namespace hvd::test
