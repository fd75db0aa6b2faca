// Factors, floating-point averages and exact integer means.
#include "reduce/scale.hpp"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "reduce/integer_mean.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test

template <class T>
std::vector<T> scaled(DType dtype, std::vector<T> data, double factor) {
  scale(dtype, data.data(), data.data(), static_cast<std::int64_t>(data.size()), factor);
  return data;
}

TEST(Scale, TruncatesIntegersTowardZero) {
  EXPECT_EQ(scaled<std::int32_t>(DType::i32, {7, -7, 1, 0}, 0.5),
            (std::vector<std::int32_t>{3, -3, 0, 0}));
  EXPECT_EQ(scaled<std::uint8_t>(DType::u8, {10, 255}, 0.1), (std::vector<std::uint8_t>{1, 25}));
}

TEST(Scale, ClampsIntegersThatLeaveTheirRange) {
  EXPECT_EQ(scaled<std::int8_t>(DType::i8, {100, -100, 127}, 2.0),
            (std::vector<std::int8_t>{127, -128, 127}));
  EXPECT_EQ(scaled<std::uint8_t>(DType::u8, {100}, -1.0), (std::vector<std::uint8_t>{0}));
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(scaled<std::int64_t>(DType::i64, {largest}, 3.0), (std::vector<std::int64_t>{largest}));
  EXPECT_EQ(scaled<std::int32_t>(DType::i32, {5}, std::numeric_limits<double>::quiet_NaN()),
            (std::vector<std::int32_t>{0}));
}

TEST(Scale, LeavesLargeIntegersExactWithoutAFactor) {
  const std::int64_t odd = (std::int64_t{1} << 53) + 1;  // no double has this value
  EXPECT_EQ(scaled<std::int64_t>(DType::i64, {odd}, 1.0), (std::vector<std::int64_t>{odd}));
}

TEST(Scale, MultipliesFloatsInTheirType) {
  EXPECT_EQ(scaled<float>(DType::f32, std::vector<float>(37, 3.0F), 1.0 / 3.0),
            std::vector<float>(37, 3.0F * static_cast<float>(1.0 / 3.0)));
  EXPECT_EQ(scaled<double>(DType::f64, std::vector<double>(5, 3.0), 0.1),
            std::vector<double>(5, 3.0 * 0.1));
}

TEST(Scale, RoundsSixteenBitTypesOnce) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto from = random_values(dtype, 100, 5);
    std::vector<std::byte> to(from.size());
    scale(dtype, to.data(), from.data(), 100, 0.3);
    for (std::int64_t i = 0; i < 100; ++i) {
      std::vector<std::byte> wanted(2);
      store(dtype, wanted.data(), 0, static_cast<float>(load(dtype, from.data(), i)) * 0.3F);
      EXPECT_EQ(load(dtype, to.data(), i), load(dtype, wanted.data(), 0));
    }
  }
}

TEST(Scale, KeepsBooleansUnlessTheFactorIsZero) {
  EXPECT_EQ(scaled<std::uint8_t>(DType::boolean, {1, 0}, 0.25), (std::vector<std::uint8_t>{1, 0}));
  EXPECT_EQ(scaled<std::uint8_t>(DType::boolean, {1, 0}, 0.0), (std::vector<std::uint8_t>{0, 0}));
}

TEST(FinishAverage, GivesBackTheValueThatAllRanksHad) {
  for (int ranks = 1; ranks <= 64; ++ranks) {  // n · x / n is x, n · x · (1/n) often is not
    std::vector<double> data(9, 0.3 * 64 * ranks);
    finish_average(DType::f64, data.data(), 9, ranks, 1.0);
    EXPECT_EQ(data, std::vector<double>(9, 0.3 * 64 * ranks / ranks));
  }
}

template <class T>
T mean_of(DType dtype, const std::vector<T>& by_rank, double postscale = 1.0) {
  const int ranks = static_cast<int>(by_rank.size());
  const auto lanes = static_cast<std::size_t>(mean_lanes(dtype));
  std::vector<std::int64_t> sum(lanes, 0);
  for (const T value : by_rank) {
    std::vector<std::int64_t> wide(lanes);
    widen_for_mean(dtype, wide.data(), &value, 1, ranks, 1.0);
    for (std::size_t i = 0; i < lanes; ++i) sum[i] += wide[i];
  }
  T mean = 0;
  narrow_mean(dtype, &mean, sum.data(), 1, ranks, postscale);
  return mean;
}

TEST(IntegerMean, DividesTheExactSum) {
  EXPECT_EQ(mean_of<std::uint8_t>(DType::u8, {200, 250, 255}), 235);
  EXPECT_EQ(mean_of<std::int8_t>(DType::i8, {-128, -128, -127}), -127);
  EXPECT_EQ(mean_of<std::int32_t>(DType::i32, std::vector<std::int32_t>(49, 1)), 1);
  const std::int32_t largest = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(mean_of<std::int32_t>(DType::i32, {largest, largest, largest - 3}), largest - 1);
}

TEST(IntegerMean, TruncatesTowardZero) {
  EXPECT_EQ(mean_of<std::int64_t>(DType::i64, {-1, -1, 0}), 0);
  EXPECT_EQ(mean_of<std::int64_t>(DType::i64, {-3, -4}), -3);
  EXPECT_EQ(mean_of<std::int64_t>(DType::i64, {3, 4}), 3);
  EXPECT_EQ(mean_of<std::int64_t>(DType::i64, {5, -6}), 0);
  EXPECT_EQ(mean_of<std::int64_t>(DType::i64, {-7, 2, 1}), -1);
}

TEST(IntegerMean, NeverOverflows) {
  const std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(mean_of<std::int64_t>(DType::i64, {largest, largest, largest}), largest);
  EXPECT_EQ(mean_of<std::int64_t>(DType::i64, {least, least, least}), least);
  EXPECT_EQ(mean_of<std::int64_t>(DType::i64, {largest, least}), 0);
  EXPECT_EQ(mean_of<std::int64_t>(DType::i64, {largest, largest - 1}), largest - 1);
}

TEST(IntegerMean, AgreesWithSmallSums) {
  for (std::int64_t a = -9; a <= 9; ++a) {
    for (std::int64_t b = -9; b <= 9; ++b) {
      for (std::int64_t c = -9; c <= 9; ++c) {
        ASSERT_EQ(mean_of<std::int64_t>(DType::i64, {a, b, c}), (a + b + c) / 3)
            << a << ' ' << b << ' ' << c;
      }
    }
  }
}

}  // namespace
}  // namespace hvd::test
