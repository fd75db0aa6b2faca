// Tests allreduce when ranks contribute nothing to some tensors, as joined ranks do.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <hvd/core/internal/backend.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "fusion/identity.hpp"
#include "reference.hpp"
#include "transports.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test
using Buffer = std::vector<std::byte>;

class AbsentRankTest : public EveryTransport {
 protected:
  /// Ranks from `present` on contribute nothing. The last of the others discards its results.
  static void run(const Operation& operation, const std::vector<std::int64_t>& counts, int present,
                  int absent_tensors) {
    const DType dtype = operation.dtype;
    expect_ranks(kind(), size(), [&](int rank, std::unique_ptr<Transport> transport) {
      const auto backend = make_ring_backend(std::move(transport));
      const auto values = [&](int r, std::size_t t) {
        return random_values(dtype, counts[t], static_cast<std::uint64_t>(r) * 100 + t);
      };
      const auto takes_part = [&](int r, std::size_t t) {
        return r < present || t >= static_cast<std::size_t>(absent_tensors);
      };
      std::vector<Buffer> inputs;
      std::vector<Buffer> outputs;
      for (std::size_t t = 0; t < counts.size(); ++t) {
        inputs.push_back(values(rank, t));
        outputs.emplace_back(inputs[t].size());
      }
      std::vector<TensorSlice> slices;
      for (std::size_t t = 0; t < counts.size(); ++t) {
        const bool here = takes_part(rank, t);
        const bool keeps = here && (t > 0 || rank != present - 1);
        slices.push_back(
            {here ? inputs[t].data() : nullptr, keeps ? outputs[t].data() : nullptr, counts[t]});
      }
      backend->allreduce({.tensors = slices,
                          .device = {},
                          .dtype = dtype,
                          .op = operation.op,
                          .prescale = operation.prescale,
                          .postscale = operation.postscale,
                          .contributors = operation.divisor},
                         soon());
      for (std::size_t t = 0; t < counts.size(); ++t) {
        if (slices[t].output == nullptr) continue;
        std::vector<Buffer> contributions;
        for (int r = 0; r < size(); ++r) {
          if (takes_part(r, t)) contributions.push_back(values(r, t));
        }
        // There are as many roundings as ranks.
        while (static_cast<int>(contributions.size()) < size()) {
          Buffer nothing(contributions[0].size());
          fill_identity(dtype, operation.op, nothing.data(), counts[t]);
          if (is_floating(dtype)) undo_prescale(operation, nothing, counts[t]);
          contributions.push_back(nothing);
        }
        expect_reduced(operation, contributions, outputs[t]);
      }
    });
  }

  /// The reference scales every contribution, but the identity element is not scaled.
  static void undo_prescale(const Operation& operation, Buffer& data, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      store(operation.dtype, data.data(), i,
            load(operation.dtype, data.data(), i) / operation.prescale);
    }
  }
};

TEST_P(AbsentRankTest, ChangesNoResult) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      if (!can_reduce(dtype, op)) continue;
      for (int present = 1; present <= size(); present += 2) {
        const Operation operation{.dtype = dtype, .op = op, .divisor = present};
        run(operation, {1}, present, 1);
        run(operation, {20'011}, present, 1);
        run(operation, {5, 1009, 64}, present, 3);
      }
    }
  }
}

TEST_P(AbsentRankTest, MayTakePartInSomeTensorsOfAFusedCall) {
  for (const DType dtype : kAllDTypes) {
    const Operation operation{.dtype = dtype, .op = ReduceOp::max};
    run(operation, {257, 31, 64}, 1, 2);
  }
}

TEST_P(AbsentRankTest, TheIdentityIsNotScaled) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const ReduceOp op : kAllOps) {
      const Operation operation{
          .dtype = dtype, .op = op, .prescale = -0.5, .postscale = 2.0, .divisor = 1};
      run(operation, {100, 7}, 1, 2);
    }
  }
}

HVD_ON_EVERY_TRANSPORT(AbsentRankTest, 1, 2, 3, 5);

double combined(ReduceOp op, double a, double b) {
  if (op == ReduceOp::min) return std::min(a, b);
  if (op == ReduceOp::max) return std::max(a, b);
  return op == ReduceOp::product ? a * b : a + b;
}

TEST(Identity, LeavesEveryNumberAsItIs) {
  const std::vector<double> numbers{-2, -1, 0, 1, 3};
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      std::vector<std::byte> data(3 * size_of(dtype) + 1);
      fill_identity(dtype, op, data.data() + 1, 3);
      for (std::int64_t i = 0; i < 3; ++i) {
        const double e = load(dtype, data.data() + 1, i);
        const bool all = op == ReduceOp::min || op == ReduceOp::product;
        if (dtype == DType::boolean) {
          EXPECT_EQ(e, all ? 1 : 0);
          continue;
        }
        EXPECT_EQ(is_floating(dtype) && op == ReduceOp::min, e > 0 && std::isinf(e));
        for (const double x : numbers) {
          if (dtype == DType::u8 && x < 0) continue;
          EXPECT_EQ(combined(op, x, e), x) << to_string(dtype) << ' ' << to_string(op);
        }
      }
    }
  }
}

}  // namespace
}  // namespace hvd::test
