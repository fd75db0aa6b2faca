// The two algorithms of allreduce give the same bits.
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "fusion/layout.hpp"
#include "ring/algorithms.hpp"
#include "transports.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test

class DoublingTest : public testing::TestWithParam<int> {};

TEST_P(DoublingTest, AgreesWithTheRingToTheBit) {
  const int n = GetParam();
  expect_ranks(Kind::in_process, n, [n](int rank, std::unique_ptr<Transport> transport) {
    const RingPlan plan = plan_ring(rank, n);
    FusionBuffer scratch;
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kAllOps) {
        for (const std::int64_t count : {1, 7, 1000, 5003}) {
          const FusionLayout layout({count}, n);
          const auto own = random_values(dtype, count, static_cast<std::uint64_t>(rank));
          const int divisor = is_floating(dtype) && op == ReduceOp::average ? n : 1;
          std::vector<std::byte> by_ring(own.size());
          std::vector<std::byte> by_doubling = own;  // in place
          // Integers are not divided here, so both algorithms must give the same sum.
          Reduction job{.elements = Accumulator({.dtype = dtype, .op = op, .divisor = divisor}),
                        .bounds = layout.bounds(),
                        .own = own.data(),
                        .result = by_ring.data()};
          ring_allreduce(*transport, plan, job, soon());
          job.own = by_doubling.data();
          job.result = by_doubling.data();
          doubling_allreduce(*transport, job, scratch, soon());
          ASSERT_EQ(by_ring, by_doubling) << to_string(dtype) << ' ' << to_string(op);
        }
      }
    }
  });
}

TEST(DoublingOfOneRank, GivesItsContribution) {
  expect_ranks(Kind::in_process, 1, [](int, std::unique_ptr<Transport> transport) {
    FusionBuffer scratch;
    const std::vector<float> own{1, 2, 3};
    std::vector<float> result(own.size());
    const FusionLayout layout({std::ssize(own)}, 1);
    doubling_allreduce(
        *transport,
        {.elements = Accumulator({.dtype = DType::f32, .op = ReduceOp::sum, .postscale = 2}),
         .bounds = layout.bounds(),
         .own = reinterpret_cast<const std::byte*>(own.data()),
         .result = reinterpret_cast<std::byte*>(result.data())},
        scratch, soon());
    EXPECT_EQ(result, (std::vector<float>{2, 4, 6}));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DoublingTest, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace hvd::test
