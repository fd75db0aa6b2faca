// Tests the reduction kernels on every SIMD target of this CPU.
#include "reduce/reduce.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <hvd/core/internal/backend.hpp>

#include "values.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test

/// Selects the kernels of one target for its lifetime.
class OnTarget {
 public:
  explicit OnTarget(std::int64_t target) { choose(target); }
  ~OnTarget() { choose(0); }  // 0: all that the CPU has
  OnTarget(const OnTarget&) = delete;
  OnTarget& operator=(const OnTarget&) = delete;

 private:
  static void choose(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

void on_every_target(const std::function<void()>& body) {
  int ran = 0;
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    const OnTarget scope(target);
    SCOPED_TRACE(hwy::TargetName(target));
    body();
    ++ran;
  }
  EXPECT_GT(ran, 0);
}

std::int64_t combine_integers(DType dtype, ReduceOp op, std::int64_t a, std::int64_t b) {
  const auto x = static_cast<std::uint64_t>(a);
  const auto y = static_cast<std::uint64_t>(b);
  if (dtype == DType::boolean) {
    return op == ReduceOp::min || op == ReduceOp::product ? a & b : a | b;
  }
  switch (op) {
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::product:
      return wrap(dtype, x * y);
    default:
      return wrap(dtype, x + y);
  }
}

double combine_floats(DType dtype, ReduceOp op, double a, double b) {
  double exact = 0;  // of f32 and narrower operands, a double holds sum and product well enough
  switch (op) {
    case ReduceOp::min:
      exact = std::min(a, b);
      break;
    case ReduceOp::max:
      exact = std::max(a, b);
      break;
    case ReduceOp::product:
      exact = a * b;
      break;
    default:
      exact = a + b;
  }
  if (dtype == DType::f64) return exact;
  const auto single =
      static_cast<float>(exact);  // 16-bit types are computed in float, then rounded
  if (dtype == DType::f16) return half_to_double(double_to_half(single));
  if (dtype == DType::bf16) return bfloat16_to_double(double_to_bfloat16(single));
  return single;
}

/// Checks one call at one size and misalignment against the definition.
void check_reduce(DType dtype, ReduceOp op, std::int64_t count, std::size_t shift) {
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
  const auto x = random_values(dtype, count, 1);
  const auto y = random_values(dtype, count, 2);
  std::vector<std::byte> a(bytes + shift);
  std::vector<std::byte> b(bytes + shift + 1);
  std::vector<std::byte> result(bytes + shift + 1, std::byte{0x5A});
  if (count > 0) {
    std::memcpy(a.data() + shift, x.data(), bytes);
    std::memcpy(b.data() + shift + 1, y.data(), bytes);
  }
  reduce(dtype, op, result.data() + shift, a.data() + shift, b.data() + shift + 1, count);
  for (std::int64_t i = 0; i < count; ++i) {
    if (is_floating(dtype)) {
      const double wanted =
          combine_floats(dtype, op, load(dtype, x.data(), i), load(dtype, y.data(), i));
      ASSERT_EQ(load(dtype, result.data() + shift, i), wanted) << "element " << i;
    } else {
      const std::int64_t wanted = combine_integers(dtype, op, load_integer(dtype, x.data(), i),
                                                   load_integer(dtype, y.data(), i));
      ASSERT_EQ(load_integer(dtype, result.data() + shift, i), wanted) << "element " << i;
    }
  }
  EXPECT_EQ(result.back(), std::byte{0x5A}) << "wrote beyond the end";
}

TEST(Reduce, MatchesTheDefinitionForEveryTypeAndOperation) {
  on_every_target([] {
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kAllOps) {
        if (!can_reduce(dtype, op)) continue;
        SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::string(to_string(op)));
        for (const std::int64_t count :
             {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1009}) {
          for (const std::size_t shift : {0, 1, 3}) check_reduce(dtype, op, count, shift);
        }
      }
    }
  });
}

TEST(Reduce, WorksInPlace) {
  std::vector<float> a(1000, 1.5F);
  const std::vector<float> b(1000, 2.25F);
  reduce(DType::f32, ReduceOp::sum, a.data(), a.data(), b.data(), 1000);
  EXPECT_EQ(a, std::vector<float>(1000, 3.75F));
}

TEST(Reduce, ConvertsEverySixteenBitPattern) {
  // x · 1 must be x for every x, and a NaN must stay a NaN.
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  on_every_target([&] {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const auto to_double = dtype == DType::f16 ? half_to_double : bfloat16_to_double;
      const std::uint16_t one = dtype == DType::f16 ? 0x3C00 : 0x3F80;
      const std::vector<std::uint16_t> ones(all.size(), one);
      std::vector<std::uint16_t> result(all.size());
      reduce(dtype, ReduceOp::product, result.data(), all.data(), ones.data(), 65536);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (std::isnan(to_double(all[i]))) {
          ASSERT_TRUE(std::isnan(to_double(result[i]))) << std::hex << all[i];
        } else {
          ASSERT_EQ(result[i], all[i]) << to_string(dtype) << std::hex << ' ' << all[i];
        }
      }
    }
  });
}

TEST(Reduce, RoundsSixteenBitSumsToNearestEven) {
  on_every_target([] {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const auto to_double = dtype == DType::f16 ? half_to_double : bfloat16_to_double;
      const auto to_bits = dtype == DType::f16 ? double_to_half : double_to_bfloat16;
      // Adds a much smaller number to every finite number and its neighbours: ties and both sides
      // of them.
      std::vector<std::uint16_t> a;
      std::vector<std::uint16_t> b;
      for (unsigned bits = 0; bits < 65536; bits += 7) {
        const double x = to_double(static_cast<std::uint16_t>(bits));
        if (!std::isfinite(x)) continue;
        for (const double factor : {1.0, 0.5, 1.5, -0.75}) {
          a.push_back(static_cast<std::uint16_t>(bits));
          b.push_back(to_bits(x * unit_roundoff(dtype) * factor));
        }
      }
      std::vector<std::uint16_t> result(a.size());
      reduce(dtype, ReduceOp::sum, result.data(), a.data(), b.data(),
             static_cast<std::int64_t>(a.size()));
      for (std::size_t i = 0; i < a.size(); ++i) {
        const auto sum = static_cast<float>(to_double(a[i]) + to_double(b[i]));
        ASSERT_EQ(to_double(result[i]), to_double(to_bits(sum)))
            << to_string(dtype) << ' ' << to_double(a[i]) << " + " << to_double(b[i]);
      }
    }
  });
}

TEST(Reduce, OverflowsToInfinityInHalf) {
  const std::vector<std::uint16_t> a(40, 0x7BFF);  // 65504, the largest
  std::vector<std::uint16_t> result(40);
  on_every_target([&] {
    reduce(DType::f16, ReduceOp::sum, result.data(), a.data(), a.data(), 40);
    EXPECT_EQ(result, std::vector<std::uint16_t>(40, 0x7C00));
  });
}

template <class T>
void check_nan_wins(DType dtype) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const T infinity = std::numeric_limits<T>::infinity();
  const std::vector<T> a{nan, 1, nan, -infinity, infinity, 1, nan};
  const std::vector<T> b{1, nan, nan, nan, nan, infinity, -infinity};
  std::vector<T> result(a.size());
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max, ReduceOp::sum, ReduceOp::product}) {
    SCOPED_TRACE(to_string(op));
    reduce(dtype, op, result.data(), a.data(), b.data(), static_cast<std::int64_t>(a.size()));
    for (const std::size_t i : {0, 1, 2, 3, 4, 6}) EXPECT_TRUE(std::isnan(result[i])) << i;
    EXPECT_EQ(result[5], op == ReduceOp::min ? T{1} : infinity);
  }
}

TEST(Reduce, LetsNanWin) {
  on_every_target([] {
    check_nan_wins<float>(DType::f32);
    check_nan_wins<double>(DType::f64);
    std::vector<std::uint16_t> a{0x7E00, 0x3C00};  // NaN, 1
    const std::vector<std::uint16_t> b{0x3C00, 0x7E00};
    reduce(DType::f16, ReduceOp::min, a.data(), a.data(), b.data(), 2);
    EXPECT_TRUE(std::isnan(half_to_double(a[0])) && std::isnan(half_to_double(a[1])));
  });
}

TEST(Reduce, TakesTheLeftNanWhenBothAre) {
  on_every_target([] {
    for (const std::size_t count : {1, 16, 35}) {
      const std::vector<float> a(count, std::bit_cast<float>(0x7FC0'1234U));
      const std::vector<float> b(count, std::bit_cast<float>(0x7FC0'5678U));
      std::vector<float> result(count);
      reduce(DType::f32, ReduceOp::max, result.data(), a.data(), b.data(),
             static_cast<std::int64_t>(count));
      for (const float x : result) EXPECT_EQ(std::bit_cast<std::uint32_t>(x), 0x7FC0'1234U);
    }
  });
}

TEST(Reduce, KeepsDenormals) {
  on_every_target([] {
    const std::vector<float> a(20, std::numeric_limits<float>::denorm_min());
    std::vector<float> result(20);
    reduce(DType::f32, ReduceOp::sum, result.data(), a.data(), a.data(), 20);
    EXPECT_EQ(result, std::vector<float>(20, 2 * std::numeric_limits<float>::denorm_min()));
  });
}

TEST(Reduce, WrapsIntegers) {
  const std::vector<std::int32_t> least(20, std::numeric_limits<std::int32_t>::min());
  const std::vector<std::int32_t> minus_one(20, -1);
  std::vector<std::int32_t> result(20);
  on_every_target([&] {
    reduce(DType::i32, ReduceOp::sum, result.data(), least.data(), minus_one.data(), 20);
    EXPECT_EQ(result[19], std::numeric_limits<std::int32_t>::max());
    reduce(DType::i32, ReduceOp::product, result.data(), least.data(), minus_one.data(), 20);
    EXPECT_EQ(result[19], std::numeric_limits<std::int32_t>::min());
  });
}

}  // namespace
}  // namespace hvd::test
