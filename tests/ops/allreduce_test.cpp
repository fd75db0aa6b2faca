// Compares allreduce over every transport with a serial reference.
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <hvd/core/internal/backend.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "reference.hpp"
#include "transports.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using Buffer = std::vector<std::byte>;

struct Case {
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::vector<std::int64_t> counts;
  bool in_place = false;
  std::size_t shift = 0;  ///< bytes by which every tensor is misaligned
  double prescale = 1.0;
  double postscale = 1.0;

  [[nodiscard]] Buffer input(int rank, std::size_t tensor) const {
    Buffer values =
        random_values(dtype, counts[tensor], static_cast<std::uint64_t>(rank) * 1000 + tensor + 1);
    return values;
  }
  [[nodiscard]] std::string text() const {
    return std::string(to_string(dtype)) + ' ' + std::string(to_string(op)) + " of " +
           std::to_string(counts.front()) + (counts.size() > 1 ? " and more" : "") +
           (in_place ? " in place" : "");
  }
};

constexpr std::byte kGuard{0x5A};

/// Runs the case on this rank and returns the outputs, one per tensor. Checks that no other memory
/// was written.
std::vector<Buffer> run_case(Backend& backend, int rank, const Case& test) {
  const std::size_t size = size_of(test.dtype);
  std::vector<Buffer> inputs;
  std::vector<Buffer> outputs;
  std::vector<TensorSlice> slices;
  for (std::size_t t = 0; t < test.counts.size(); ++t) {
    const Buffer values = test.input(rank, t);
    Buffer padded(values.size() + test.shift + 1, kGuard);
    if (!values.empty()) std::memcpy(padded.data() + test.shift, values.data(), values.size());
    inputs.push_back(padded);
    outputs.push_back(test.in_place ? padded : Buffer(padded.size(), kGuard));
  }
  const std::vector<Buffer> before = inputs;
  for (std::size_t t = 0; t < test.counts.size(); ++t) {
    std::byte* const output = outputs[t].data() + test.shift;
    const std::byte* const input = inputs[t].data() + test.shift;
    if (test.counts[t] == 0) {
      slices.push_back({});
    } else {
      slices.push_back({test.in_place ? output : input, output, test.counts[t]});
    }
  }
  backend.allreduce({.tensors = slices,
                     .device = {},
                     .dtype = test.dtype,
                     .op = test.op,
                     .prescale = test.prescale,
                     .postscale = test.postscale},
                    soon());
  EXPECT_EQ(inputs, before) << "the input was written";
  std::vector<Buffer> results;
  for (std::size_t t = 0; t < test.counts.size(); ++t) {
    const auto bytes = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(test.counts[t]) * size);
    EXPECT_EQ(outputs[t].back(), kGuard) << "wrote beyond the end";
    const auto begin = outputs[t].begin() + static_cast<std::ptrdiff_t>(test.shift);
    results.emplace_back(begin, begin + bytes);
  }
  return results;
}

void check_case(const Case& test, int ranks, const std::vector<Buffer>& results) {
  for (std::size_t t = 0; t < test.counts.size(); ++t) {
    std::vector<Buffer> inputs;
    for (int rank = 0; rank < ranks; ++rank) inputs.push_back(test.input(rank, t));
    expect_reduced({.dtype = test.dtype,
                    .op = test.op,
                    .prescale = test.prescale,
                    .postscale = test.postscale,
                    .divisor = ranks},
                   inputs, results[t]);
  }
}

class AllreduceTest : public EveryTransport {
 protected:
  /// Runs every case on every rank: rank 0 must be right, and the others must have the same bits.
  static void run_all(const std::vector<Case>& cases) {
    std::mutex mutex;
    std::vector<std::vector<std::vector<Buffer>>> by_rank(static_cast<std::size_t>(size()));
    expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
      const auto backend = make_ring_backend(std::move(transport));
      std::vector<std::vector<Buffer>> results;
      for (const Case& test : cases) results.push_back(run_case(*backend, rank, test));
      const std::lock_guard lock(mutex);
      by_rank[static_cast<std::size_t>(rank)] = std::move(results);
    });
    if (HasFailure()) return;
    for (std::size_t c = 0; c < cases.size(); ++c) {
      SCOPED_TRACE(cases[c].text());
      check_case(cases[c], size(), by_rank[0][c]);
      for (std::size_t rank = 1; rank < by_rank.size(); ++rank) {
        ASSERT_TRUE(by_rank[rank][c] == by_rank[0][c]) << "bits differ on rank " << rank;
      }
      if (HasFailure()) return;
    }
  }
};

TEST_P(AllreduceTest, EveryTypeOperationAndAwkwardSize) {
  std::vector<Case> cases;
  const std::int64_t n = size();
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      if (!can_reduce(dtype, op)) continue;
      for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, n - 1, n, n + 1,
                                       std::int64_t{127}, std::int64_t{257}, std::int64_t{1009}}) {
        const bool in_place = (count + static_cast<int>(op)) % 2 == 0;
        cases.push_back({.dtype = dtype, .op = op, .counts = {count}, .in_place = in_place});
      }
    }
  }
  run_all(cases);
}

TEST_P(AllreduceTest, LargeTensors) {
  std::vector<Case> cases;
  for (const DType dtype : kAllDTypes) {
    for (const bool in_place : {false, true}) {
      const ReduceOp op = dtype == DType::boolean ? ReduceOp::max : ReduceOp::average;
      cases.push_back({.dtype = dtype, .op = op, .counts = {20'011}, .in_place = in_place});
    }
  }
  cases.push_back({.dtype = DType::f32, .op = ReduceOp::sum, .counts = {300'000}});
  run_all(cases);
}

TEST_P(AllreduceTest, FusedTensors) {
  std::vector<Case> cases;
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum, ReduceOp::min}) {
      if (!can_reduce(dtype, op)) continue;
      cases.push_back({.dtype = dtype,
                       .op = op,
                       .counts = {3, 0, 1000, 1, 257, 9'001},
                       .in_place = op == ReduceOp::sum});
      cases.push_back({.dtype = dtype, .op = op, .counts = {0, 0, 1}});
      cases.push_back({.dtype = dtype, .op = op, .counts = {0, 0}});
    }
  }
  run_all(cases);
}

TEST_P(AllreduceTest, UnalignedMemory) {
  std::vector<Case> cases;
  for (const DType dtype : kAllDTypes) {
    for (const std::int64_t count : {std::int64_t{33}, std::int64_t{17'003}}) {
      const ReduceOp op = dtype == DType::boolean ? ReduceOp::sum : ReduceOp::average;
      cases.push_back({.dtype = dtype, .op = op, .counts = {count}, .shift = 1});
      cases.push_back({.dtype = dtype, .op = op, .counts = {count, 5}, .shift = 3});
    }
  }
  run_all(cases);
}

TEST_P(AllreduceTest, ScalesBeforeAndAfter) {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum, ReduceOp::max}) {
      for (const std::vector<std::int64_t>& counts :
           {std::vector<std::int64_t>{301}, std::vector<std::int64_t>{7, 9'001}}) {
        cases.push_back({.dtype = dtype,
                         .op = op,
                         .counts = counts,
                         .in_place = op == ReduceOp::sum,
                         .prescale = 0.5,
                         .postscale = 3.0});
      }
    }
  }
  run_all(cases);
}

TEST_P(AllreduceTest, GivesTheSameBitsFusedOrNot) {
  const std::vector<std::int64_t> counts{1, 5, 1000, 12'007, 64};
  expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
    const auto backend = make_ring_backend(std::move(transport));
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::product}) {
        Case fused{.dtype = dtype, .op = op, .counts = counts};
        const auto together = run_case(*backend, rank, fused);
        EXPECT_TRUE(together == run_case(*backend, rank, fused)) << "differs between two runs";
        for (std::size_t t = 0; t < counts.size(); ++t) {
          std::vector<Buffer> inputs(1, fused.input(rank, t));
          Buffer output(inputs[0].size());
          const TensorSlice slice{inputs[0].data(), output.data(), counts[t]};
          backend->allreduce({.tensors = {&slice, 1}, .device = {}, .dtype = dtype, .op = op},
                             soon());
          EXPECT_TRUE(output == together[t]) << fused.text() << ", tensor " << t;
        }
      }
    }
  });
}

TEST_P(AllreduceTest, ScalesIntegersInDouble) {
  expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
    const int n = transport->size();
    const auto backend = make_ring_backend(std::move(transport));
    std::vector<std::int32_t> data(100, 5);
    const auto* const in = reinterpret_cast<const std::byte*>(data.data());
    auto* const out = reinterpret_cast<std::byte*>(data.data());
    const TensorSlice slice{in, out, 100};
    backend->allreduce({.tensors = {&slice, 1},
                        .device = {},
                        .dtype = DType::i32,
                        .op = ReduceOp::sum,
                        .prescale = 0.5,
                        .postscale = 1.5},
                       soon());
    EXPECT_EQ(data, std::vector<std::int32_t>(100, static_cast<int>(2 * n * 1.5))) << rank;
    std::fill(data.begin(), data.end(), 7);
    backend->allreduce({.tensors = {&slice, 1},
                        .device = {},
                        .dtype = DType::i32,
                        .op = ReduceOp::average,
                        .prescale = -0.5,
                        .postscale = 2.0},
                       soon());
    EXPECT_EQ(data, std::vector<std::int32_t>(100, -6));
  });
}

TEST_P(AllreduceTest, SpreadsNanFromAnyRankToAll) {
  expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
    const int n = transport->size();
    const auto backend = make_ring_backend(std::move(transport));
    for (const std::int64_t count : {std::int64_t{40}, std::int64_t{20'000}}) {
      for (const ReduceOp op : kAllOps) {
        std::vector<float> data(static_cast<std::size_t>(count), 1.0F);
        // Every rank changes elements of its own.
        for (std::size_t i = static_cast<std::size_t>(rank); i < data.size();
             i += 2 * static_cast<std::size_t>(n)) {
          data[i] = std::numeric_limits<float>::quiet_NaN();
        }
        const auto* const in = reinterpret_cast<const std::byte*>(data.data());
        auto* const out = reinterpret_cast<std::byte*>(data.data());
        const TensorSlice slice{in, out, count};
        backend->allreduce({.tensors = {&slice, 1}, .device = {}, .dtype = DType::f32, .op = op},
                           soon());
        for (std::size_t i = 0; i < data.size(); ++i) {
          const bool spoilt = i % (2 * static_cast<std::size_t>(n)) < static_cast<std::size_t>(n);
          ASSERT_EQ(std::isnan(data[i]), spoilt) << "element " << i << ' ' << to_string(op);
        }
      }
    }
  });
}

TEST_P(AllreduceTest, KeepsInfinitiesAndDenormals) {
  expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
    const auto backend = make_ring_backend(std::move(transport));
    const float infinity = std::numeric_limits<float>::infinity();
    const float tiny = std::numeric_limits<float>::denorm_min();
    std::vector<float> data{rank == 0 ? infinity : 1.0F, rank == 0 ? -infinity : 1.0F, tiny};
    const auto* const in = reinterpret_cast<const std::byte*>(data.data());
    auto* const out = reinterpret_cast<std::byte*>(data.data());
    const TensorSlice slice{in, out, 3};
    backend->allreduce(
        {.tensors = {&slice, 1}, .device = {}, .dtype = DType::f32, .op = ReduceOp::sum}, soon());
    EXPECT_EQ(data, (std::vector<float>{infinity, -infinity, tiny * static_cast<float>(size())}));
  });
}

HVD_ON_EVERY_TRANSPORT(AllreduceTest, 1, 2, 3, 4, 5, 8);

}  // namespace
}  // namespace hvd::test
