#include "nccl_checks.hpp"

#include <string>

#include <gtest/gtest.h>

#include "values.hpp"

namespace hvd::test {
namespace {

std::string trace(const BackendChecks& checks, DType dtype, std::string_view what) {
  return "rank " + std::to_string(checks.rank) + ", " + std::string(to_string(dtype)) + " " +
         std::string(what);
}

}  // namespace

void check_every_reduction(BackendChecks checks) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      if (!checks.backend.supports(OpKind::allreduce, checks.device, dtype, op)) continue;
      const std::string what = trace(checks, dtype, to_string(op));
      EXPECT_EQ(checks.allreduce(dtype, op, {97}, false), 0) << what << ", one tensor";
      EXPECT_EQ(checks.allreduce(dtype, op, {1}, true), 0) << what << ", one element in place";
      EXPECT_EQ(checks.allreduce(dtype, op, {5, 0, 1, 30, 2}, true), 0)
          << what << ", fused in place";
      EXPECT_EQ(checks.allreduce(dtype, op, {3, 401}, false), 0) << what << ", fused";
      EXPECT_EQ(checks.allreduce(dtype, op, {0}, false), 0) << what << ", empty";
    }
  }
}

void check_scales(BackendChecks checks) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const ReduceOp op : kAllOps) {
      if (!checks.backend.supports(OpKind::allreduce, checks.device, dtype, op)) continue;
      const std::string what = trace(checks, dtype, to_string(op));
      EXPECT_EQ(checks.allreduce(dtype, op, {61}, false, {0.5, 2.5}), 0) << what << ", both";
      EXPECT_EQ(checks.allreduce(dtype, op, {61}, true, {0.5, 1.0}), 0) << what << ", before";
      EXPECT_EQ(checks.allreduce(dtype, op, {61, 7}, true, {1.0, 2.5}), 0) << what << ", after";
      EXPECT_EQ(checks.allreduce(dtype, op, {7, 0, 61}, false, {0.5, 2.5}), 0) << what << ", fused";
    }
  }
  if (checks.size > 1) return;  // the kernel of NCCL for one rank may forget the last element
  EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::sum, {262'145}, true, {0.5, 1.0}), 0) << "large";
}

void check_integer_scales(BackendChecks checks) {
  for (const DType dtype : {DType::u8, DType::i8, DType::i32, DType::i64}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max}) {
      const std::string what = trace(checks, dtype, to_string(op));
      EXPECT_EQ(checks.allreduce(dtype, op, {61}, false, {0.5, 2.5}), 0) << what << ", both";
      EXPECT_EQ(checks.allreduce(dtype, op, {61, 1, 7}, true, {1.5, 1.0}), 0) << what << ", fused";
      EXPECT_EQ(checks.reducescatter(dtype, op, {11, 3}, {0.5, 2.5}), 0) << what << ", scattered";
    }
  }
}

// The results have the bits of those of tensors that were converted before.
void check_conversions(BackendChecks checks) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum, ReduceOp::max}) {
      if (!checks.backend.supports(OpKind::allreduce, checks.device, dtype, op)) continue;
      for (const bool in_place : {true, false}) {
        std::vector<std::int64_t> counts{61, 0, 7, 1};
        const bool has_large =
            dtype == DType::bf16 && op == ReduceOp::sum && in_place && checks.size <= 2;
        if (has_large) counts.push_back(524'289);  // more than a MiB
        std::vector<TensorSlice> long_slices;
        std::vector<TensorSlice> half_slices;
        for (std::size_t i = 0; i < counts.size(); ++i) {
          const std::int64_t count = counts[i];
          const bool absent = checks.rank > 0 && checks.rank == checks.size - 1 && i == 2;
          const auto seed = static_cast<std::uint64_t>(checks.rank) * 10 + i;
          const Bytes values = random_values(DType::f32, count, seed);
          Bytes half(values.size() / 2);
          for (std::int64_t k = 0; k < count; ++k) {
            store(dtype, half.data(), k, load(DType::f32, values.data(), k));
          }
          const auto slice = [&](const Bytes& given) {
            if (absent || count == 0) return TensorSlice{nullptr, nullptr, count};
            std::byte* const input = checks.memory.put(given);
            return TensorSlice{input, in_place ? input : checks.memory.put(Bytes(given.size())),
                               count};
          };
          long_slices.push_back(slice(values));
          half_slices.push_back(slice(half));
        }
        // Large tensors have another recipe, which rounds the smallest f16 differently when an
        // average is also scaled before.
        const double prescale = op == ReduceOp::average ? 1.0 : 0.5;
        AllreduceCall call{half_slices, checks.device, dtype, op, prescale, 3.0};
        if (op == ReduceOp::average && checks.size > 1) call.contributors = checks.size - 1;
        checks.backend.allreduce(call, soon());
        call.tensors = long_slices;
        call.f32_memory = true;
        checks.backend.allreduce(call, soon());
        for (std::size_t i = 0; i < counts.size(); ++i) {
          if (half_slices[i].output == nullptr) continue;
          const auto count = static_cast<std::size_t>(counts[i]);
          const Bytes half = checks.memory.get(half_slices[i].output, count * 2);
          Bytes expected(count * 4);
          for (std::int64_t k = 0; k < counts[i]; ++k) {
            store(DType::f32, expected.data(), k, load(dtype, half.data(), k));
          }
          EXPECT_TRUE(checks.memory.get(long_slices[i].output, count * 4) == expected)
              << trace(checks, dtype, to_string(op)) << ", tensor " << i;
        }
      }
    }
  }
}

void check_broadcasts(BackendChecks checks) {
  for (int root = 0; root < checks.size; ++root) {
    for (const DType dtype : kAllDTypes) {
      const std::string what = trace(checks, dtype, "broadcast from " + std::to_string(root));
      EXPECT_EQ(checks.broadcast(dtype, root, {57}), 0) << what;
      EXPECT_EQ(checks.broadcast(dtype, root, {0, 1, 97, 3}), 0) << what << ", fused";
    }
  }
}

void check_allgathers(BackendChecks checks) {
  for (const DType dtype : kAllDTypes) {
    const std::string what = trace(checks, dtype, "allgather");
    EXPECT_EQ(checks.allgather(dtype, {3}), 0) << what;
    EXPECT_EQ(checks.allgather(dtype, {-1}), 0) << what << ", some with nothing";
    EXPECT_EQ(checks.allgather(dtype, {5, 0, -1, 100}), 0) << what << ", fused";
  }
}

void check_reducescatters(BackendChecks checks) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      if (!checks.backend.supports(OpKind::reducescatter, checks.device, dtype, op)) continue;
      const std::string what = trace(checks, dtype, to_string(op));
      EXPECT_EQ(checks.reducescatter(dtype, op, {5}), 0) << what << ", unequal";
      EXPECT_EQ(checks.reducescatter(dtype, op, {-1}), 0) << what << ", nothing for some";
      EXPECT_EQ(checks.reducescatter(dtype, op, {4, -1, 0, 90}), 0) << what << ", fused";
    }
  }
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    for (const ReduceOp op : kAllOps) {
      if (!checks.backend.supports(OpKind::reducescatter, checks.device, dtype, op)) continue;
      const std::string what = trace(checks, dtype, to_string(op));
      EXPECT_EQ(checks.reducescatter(dtype, op, {11}, {0.5, 2.5}), 0) << what << ", scaled";
      EXPECT_EQ(checks.reducescatter(dtype, op, {11, 0}, {0.5, 1.0}), 0) << what << ", before";
    }
  }
}

void check_alltoalls(BackendChecks checks) {
  for (const DType dtype : kAllDTypes) {
    const std::string what = trace(checks, dtype, "alltoall");
    EXPECT_EQ(checks.alltoall(dtype, 0), 0) << what;
    EXPECT_EQ(checks.alltoall(dtype, -1), 0) << what << ", nothing for some";
    EXPECT_EQ(checks.alltoall(dtype, 1000), 0) << what << ", more";
  }
}

void check_absent_ranks(BackendChecks checks) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : kAllOps) {
      if (!checks.backend.supports(OpKind::allreduce, checks.device, dtype, op)) continue;
      if (op == ReduceOp::average && !is_floating(dtype)) continue;
      const std::string what = trace(checks, dtype, to_string(op));
      EXPECT_EQ(checks.allreduce_without_last(dtype, op, {5}), 0) << what << ", one tensor";
      EXPECT_EQ(checks.allreduce_without_last(dtype, op, {5, 30'011, 2}), 0) << what << ", fused";
      if (!is_floating(dtype)) continue;
      EXPECT_EQ(checks.allreduce_without_last(dtype, op, {5, 7}, {-0.5, 2.0}), 0)
          << what << ", scaled";
      EXPECT_EQ(checks.allreduce_without_last(dtype, op, {5}, {-0.5, 2.0}), 0)
          << what << ", one tensor scaled";
    }
  }
}

void check_refusals(BackendChecks checks) {
  const auto code_of = [&](DType dtype, ReduceOp op, const Scales& scales) {
    try {
      static_cast<void>(checks.allreduce(dtype, op, {4}, true, scales));
    } catch (const Error& error) {
      return error.code();
    }
    return Errc::internal;
  };
  EXPECT_EQ(code_of(DType::i32, ReduceOp::average, {}), Errc::unsupported);
  EXPECT_EQ(code_of(DType::i16, ReduceOp::sum, {}), Errc::unsupported);
  EXPECT_FALSE(
      checks.backend.supports(OpKind::allreduce, checks.device, DType::i16, ReduceOp::sum));
  EXPECT_FALSE(
      checks.backend.supports(OpKind::allreduce, checks.device, DType::u8, ReduceOp::average));
  EXPECT_FALSE(checks.backend.supports(OpKind::barrier, Device{}, DType::u8, ReduceOp::sum));
  EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::sum, {4}, true), 0);
}

}  // namespace hvd::test
