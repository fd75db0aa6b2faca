// Compares reducescatter over every transport with a serial reference.
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <hvd/core/internal/backend.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "fusion/layout.hpp"
#include "reference.hpp"
#include "transports.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test
using Buffer = std::vector<std::byte>;
using Counts = std::vector<std::int64_t>;  // by rank

constexpr std::byte kGuard{0x5A};

std::int64_t sum_of(const Counts& counts, std::size_t end) {
  std::int64_t sum = 0;
  for (std::size_t r = 0; r < end; ++r) sum += counts[r];
  return sum;
}

struct Case {
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::vector<Counts> counts;  ///< by tensor
  double prescale = 1.0;
  double postscale = 1.0;
  std::size_t shift = 0;  ///< bytes by which every tensor is misaligned

  [[nodiscard]] Buffer input(int rank, std::size_t tensor) const {
    return random_values(dtype, sum_of(counts[tensor], counts[tensor].size()),
                         static_cast<std::uint64_t>(rank) * 1000 + tensor + 1);
  }
};

/// Runs the case and returns this rank's results, one per tensor. Checks that no other memory was
/// written.
std::vector<Buffer> run_case(Backend& backend, int rank, const Case& test) {
  const std::size_t size = size_of(test.dtype);
  const auto me = static_cast<std::size_t>(rank);
  std::vector<Buffer> inputs;
  std::vector<Buffer> outputs;
  for (std::size_t t = 0; t < test.counts.size(); ++t) {
    Buffer input(test.shift, kGuard);
    const Buffer values = test.input(rank, t);
    input.insert(input.end(), values.begin(), values.end());
    inputs.push_back(std::move(input));
    outputs.emplace_back(static_cast<std::size_t>(test.counts[t][me]) * size + test.shift + 1,
                         kGuard);
  }
  const std::vector<Buffer> before = inputs;
  std::vector<ScatterSlice> slices;
  for (std::size_t t = 0; t < test.counts.size(); ++t) {
    const bool nothing = inputs[t].size() == test.shift;
    slices.push_back({nothing ? nullptr : inputs[t].data() + test.shift,
                      test.counts[t][me] == 0 ? nullptr : outputs[t].data() + test.shift,
                      test.counts[t]});
  }
  backend.reducescatter({.tensors = slices,
                         .device = {},
                         .dtype = test.dtype,
                         .op = test.op,
                         .prescale = test.prescale,
                         .postscale = test.postscale},
                        soon());
  EXPECT_EQ(inputs, before) << "the input was written";
  for (Buffer& output : outputs) {
    EXPECT_EQ(output.back(), kGuard) << "wrote beyond the end";
    output.pop_back();
    output.erase(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(test.shift));
  }
  return outputs;
}

void check_case(const Case& test, int rank, int ranks, const std::vector<Buffer>& results) {
  const auto size = static_cast<std::int64_t>(size_of(test.dtype));
  for (std::size_t t = 0; t < test.counts.size(); ++t) {
    const auto me = static_cast<std::size_t>(rank);
    const std::int64_t begin = sum_of(test.counts[t], me) * size;
    const std::int64_t end = sum_of(test.counts[t], me + 1) * size;
    std::vector<Buffer> parts;
    for (int r = 0; r < ranks; ++r) {
      const Buffer input = test.input(r, t);
      parts.emplace_back(input.begin() + begin, input.begin() + end);
    }
    expect_reduced({.dtype = test.dtype,
                    .op = test.op,
                    .prescale = test.prescale,
                    .postscale = test.postscale,
                    .divisor = ranks},
                   parts, results[t]);
  }
}

class ReducescatterTest : public EveryTransport {
 protected:
  static void run_all(const std::vector<Case>& cases) {
    expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
      const auto backend = make_ring_backend(std::move(transport));
      for (const Case& test : cases) check_case(test, rank, size(), run_case(*backend, rank, test));
    });
  }

  /// Returns counts of first, first + step, … elements.
  static Counts growing(std::int64_t first, std::int64_t step) {
    Counts counts;
    for (int rank = 0; rank < size(); ++rank) counts.push_back(first + step * rank);
    return counts;
  }
  static Counts only(int rank, std::int64_t count) {
    Counts counts(static_cast<std::size_t>(size()), 0);
    counts[static_cast<std::size_t>(rank)] = count;
    return counts;
  }
  /// Returns the counts into which an allreduce divides `count` elements.
  static Counts even(std::int64_t count) {
    Counts counts;
    for (int rank = 0; rank < size(); ++rank) counts.push_back(part_of(count, rank, size()).size());
    return counts;
  }
};

TEST_P(ReducescatterTest, EveryTypeOperationAndAwkwardSize) {
  std::vector<Case> cases;
  const std::int64_t n = size();
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      if (!can_reduce(dtype, op)) continue;
      for (const Counts& counts : {even(0), even(1), even(n - 1), even(n + 1), even(1009),
                                   growing(0, 3), only(size() - 1, 7), only(0, 131)}) {
        cases.push_back({.dtype = dtype, .op = op, .counts = {counts}});
      }
    }
  }
  run_all(cases);
}

TEST_P(ReducescatterTest, FusedTensors) {
  std::vector<Case> cases;
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum, ReduceOp::min}) {
      if (!can_reduce(dtype, op)) continue;
      cases.push_back({.dtype = dtype,
                       .op = op,
                       .counts = {even(3), even(0), growing(100, 7), only(0, 1), even(1009)}});
      cases.push_back({.dtype = dtype, .op = op, .counts = {even(0), even(0)}});
    }
  }
  run_all(cases);
}

TEST_P(ReducescatterTest, LargeAndUnalignedTensors) {
  std::vector<Case> cases;
  for (const DType dtype : kAllDTypes) {
    const ReduceOp op = dtype == DType::boolean ? ReduceOp::max : ReduceOp::average;
    cases.push_back({.dtype = dtype, .op = op, .counts = {growing(5'003, 1'001)}, .shift = 1});
  }
  cases.push_back({.counts = {even(300'000)}});
  cases.push_back({.counts = {growing(1, 40'000), growing(7, 11)}});
  run_all(cases);
}

TEST_P(ReducescatterTest, ScalesBeforeAndAfter) {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum, ReduceOp::max}) {
      for (const std::vector<Counts>& counts :
           {std::vector<Counts>{growing(0, 30)}, std::vector<Counts>{even(7), growing(900, 1)}}) {
        cases.push_back(
            {.dtype = dtype, .op = op, .counts = counts, .prescale = 0.5, .postscale = 3.0});
      }
    }
  }
  run_all(cases);
}

TEST_P(ReducescatterTest, HasTheBitsOfAnAllreduceFusedOrNot) {
  expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
    const auto backend = make_ring_backend(std::move(transport));
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::product}) {
        Case fused{.dtype = dtype, .op = op, .counts = {even(5), even(12'007), even(64)}};
        const auto together = run_case(*backend, rank, fused);
        for (std::size_t t = 0; t < fused.counts.size(); ++t) {
          Buffer whole = fused.input(rank, t);
          const auto count = static_cast<std::int64_t>(whole.size() / size_of(dtype));
          const TensorSlice slice{whole.data(), whole.data(), count};
          backend->allreduce({.tensors = {&slice, 1}, .device = {}, .dtype = dtype, .op = op},
                             soon());
          const Range part = part_of(count, rank, size());
          const auto bytes = static_cast<std::int64_t>(size_of(dtype));
          const Buffer mine(whole.begin() + part.begin * bytes, whole.begin() + part.end * bytes);
          EXPECT_TRUE(mine == together[t]) << to_string(dtype) << ' ' << to_string(op) << ' ' << t;
        }
      }
    }
  });
}

TEST_P(ReducescatterTest, AnIntegerMeanIsExactWhereItsTypeCannotHoldTheSum) {
  expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
    const auto backend = make_ring_backend(std::move(transport));
    const std::vector<std::uint8_t> input(static_cast<std::size_t>(3 * size()), 250);
    std::vector<std::uint8_t> output(3);
    const Counts counts(static_cast<std::size_t>(size()), 3);
    const ScatterSlice slice{reinterpret_cast<const std::byte*>(input.data()),
                             reinterpret_cast<std::byte*>(output.data()), counts};
    backend->reducescatter(
        {.tensors = {&slice, 1}, .device = {}, .dtype = DType::u8, .op = ReduceOp::average},
        soon());
    EXPECT_EQ(output, std::vector<std::uint8_t>(3, 250)) << rank;
  });
}

HVD_ON_EVERY_TRANSPORT(ReducescatterTest, 1, 2, 3, 4, 5, 8);

}  // namespace
}  // namespace hvd::test
