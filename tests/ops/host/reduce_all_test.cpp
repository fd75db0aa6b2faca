// The kernels that reduce all contributions at once, compiled for every kind of CPU.
#include "reduce/reduce_all.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <hvd/core/internal/backend.hpp>

#include "reference.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test
using Buffer = std::vector<std::byte>;

/// Once for every kind of CPU that this one can stand in for.
class ReduceAllTest : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { choose(GetParam()); }
  void TearDown() override { choose(0); }  // 0: all that the CPU has

 private:
  static void choose(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

struct Case {
  ReduceAll what;
  int ranks = 2;
  std::int64_t count = 0;
  std::size_t shift = 0;  ///< bytes by which the results are misaligned
  bool in_place = false;
  Stores stores = Stores::cached;
};

constexpr std::byte kGuard{0x5A};

void check(const Case& test) {
  const std::size_t size = size_of(test.what.dtype);
  const std::size_t bytes = static_cast<std::size_t>(test.count) * size;
  std::vector<Buffer> inputs;
  std::vector<Buffer> memory;
  for (int rank = 0; rank < test.ranks; ++rank) {
    inputs.push_back(random_values(test.what.dtype, test.count, static_cast<std::uint64_t>(rank)));
    memory.emplace_back(bytes + test.shift + 128, kGuard);
  }
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    // From where the vector has its memory to the next cache line, and from there the shift.
    const auto address = reinterpret_cast<std::uintptr_t>(memory[rank].data());
    to.push_back(memory[rank].data() + (64 - address % 64) % 64 + test.shift);
    if (test.in_place && bytes > 0) std::memcpy(to.back(), inputs[rank].data(), bytes);
    from.push_back(test.in_place ? to.back() : inputs[rank].data());
  }
  reduce_all(test.what, to, from, test.count, test.stores);
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    expect_reduced({test.what.dtype, test.what.op, 1.0, test.what.postscale, test.what.divisor},
                   inputs, Buffer(to[rank], to[rank] + bytes));
    ASSERT_EQ(to[rank][bytes], kGuard) << "wrote beyond the end";
    ASSERT_TRUE(std::equal(to[0], to[0] + bytes, to[rank])) << "targets differ";
  }
}

TEST_P(ReduceAllTest, AgreesWithTheReference) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      if (!can_reduce(dtype, op)) continue;
      for (const int ranks : {1, 2, 3, 7}) {
        for (const std::int64_t count : {0, 1, 15, 64, 130, 1009}) {
          const ReduceAll what{dtype, op, op == ReduceOp::average ? ranks : 1, 1.0};
          const bool in_place = count % 2 == 0;
          check({what, ranks, count, 0, in_place, Stores::cached});
          check({what, ranks, count, 0, in_place, Stores::streamed});
          check({what, ranks, count, size_of(dtype), in_place, Stores::streamed});
          check({what, ranks, count, 3, in_place, Stores::streamed});
        }
        if (HasFatalFailure()) FAIL() << to_string(dtype) << ' ' << to_string(op);
      }
    }
  }
}

TEST_P(ReduceAllTest, ScalesFloatingPoint) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const int divisor : {1, 3, 4}) {
      check({{dtype, ReduceOp::average, divisor, 0.75}, divisor, 1009, 0, false, Stores::cached});
    }
  }
}

TEST_P(ReduceAllTest, RoundsSixteenBitsOnceToNearestEven) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    // 1, a half step and a hair more: rounded at each step the first half would be lost.
    const double half_step = unit_roundoff(dtype);
    std::vector<Buffer> inputs(3, Buffer(200));
    for (std::int64_t i = 0; i < 100; ++i) {
      store(dtype, inputs[0].data(), i, 1.0);
      store(dtype, inputs[1].data(), i, half_step);
      store(dtype, inputs[2].data(), i, i % 2 == 0 ? half_step / 4 : 0.0);
    }
    Buffer result(200);
    std::byte* const to = result.data();
    const std::byte* const from[] = {inputs[0].data(), inputs[1].data(), inputs[2].data()};
    reduce_all({.dtype = dtype}, {&to, 1}, from, 100);
    for (std::int64_t i = 0; i < 100; ++i) {
      ASSERT_EQ(load(dtype, result.data(), i), i % 2 == 0 ? 1.0 + 2 * half_step : 1.0);
    }
  }
}

TEST_P(ReduceAllTest, LetsNanWin) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const ReduceOp op : kAllOps) {
      std::vector<Buffer> inputs;
      for (std::int64_t rank = 0; rank < 3; ++rank) {
        inputs.push_back(random_values(dtype, 150, 5));
        for (std::int64_t i = rank; i < 150; i += 4) {
          store(dtype, inputs.back().data(), i, std::numeric_limits<double>::quiet_NaN());
        }
      }
      Buffer result(inputs[0].size());
      std::byte* const to = result.data();
      const std::byte* const from[] = {inputs[0].data(), inputs[1].data(), inputs[2].data()};
      reduce_all({.dtype = dtype, .op = op}, {&to, 1}, from, 150);
      for (std::int64_t i = 0; i < 150; ++i) {
        ASSERT_EQ(std::isnan(load(dtype, result.data(), i)), i % 4 < 3) << to_string(dtype);
      }
    }
  }
}

std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> all;
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    all.push_back(left & -left);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cpus, ReduceAllTest, testing::ValuesIn(targets()),
                         [](const auto& test) { return std::string(hwy::TargetName(test.param)); });

}  // namespace
}  // namespace hvd::test
