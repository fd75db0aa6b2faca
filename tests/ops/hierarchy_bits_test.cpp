// Leaders and lanes must give the same bits, so that the measurement at start-up changes none.
// Hosts are groups of threads, each with its host's engine.
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <hvd/core/topology.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "hierarchy/hierarchical_backend.hpp"
#include "host/host_ranks.hpp"
#include "ring/ring_backend.hpp"
#include "transports.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test
using Bits = std::vector<std::byte>;

/// Algorithms that a measured plan may contain.
struct MeasuredWays {
  const char* hosts;
  const char* ring;
};

struct Sum {
  DType dtype;
  ReduceOp op;
  std::int64_t count;
  double prescale = 1.0;
};

// The last sum is exactly one segment with all of these algorithms.
constexpr std::array kSums{
    Sum{DType::f32, ReduceOp::sum, 5},           Sum{DType::f32, ReduceOp::sum, 10'007},
    Sum{DType::f32, ReduceOp::average, 524'288}, Sum{DType::f16, ReduceOp::sum, 1'003},
    Sum{DType::f16, ReduceOp::average, 40'009},  Sum{DType::bf16, ReduceOp::sum, 40'009},
    Sum{DType::bf16, ReduceOp::sum, 997, 0.37},  Sum{DType::f64, ReduceOp::product, 3'001}};

/// Returns the results of each rank of these hosts for each sum.
std::vector<std::vector<Bits>> results_of(const std::vector<int>& host_of,
                                          const MeasuredWays& ways) {
  const int size = static_cast<int>(host_of.size());
  auto transports = make_in_process_transports(size);
  std::vector<std::vector<Bits>> results(host_of.size());
  expect_host_ranks(size, [&](int rank, HostEngine& engine) {
    const auto place = static_cast<std::size_t>(rank);
    std::vector<int> here;
    for (int other = 0; other < size; ++other) {
      if (host_of[static_cast<std::size_t>(other)] == host_of[place]) here.push_back(other);
    }
    Topology topology;
    topology.rank = rank;
    topology.size = size;
    topology.host_of = host_of;
    auto ring = std::make_unique<RingBackend>(std::move(transports[place]), host_of);
    ring->use(AlgorithmTable::parse(ways.ring));
    auto host = here.size() > 1 ? engine.backend->subset(here, soon()) : nullptr;
    const auto hosts = compose_hierarchy(std::move(ring), std::move(host), topology, soon());
    hosts->use(AlgorithmTable::parse(ways.hosts));
    for (const Sum& sum : kSums) {
      Bits data = random_values(sum.dtype, sum.count, static_cast<std::uint64_t>(rank) + 1);
      const TensorSlice slice{data.data(), data.data(), sum.count};
      hosts->allreduce({{&slice, 1}, {}, sum.dtype, sum.op, sum.prescale}, soon());
      results[place].push_back(std::move(data));
    }
    hosts->barrier(soon());
  });
  return results;
}

class MeasuredBits : public testing::TestWithParam<std::vector<int>> {};

TEST_P(MeasuredBits, AreTheSameWhateverWasMeasured) {
  const std::vector<int>& host_of = GetParam();
  std::vector<MeasuredWays> all{{"leaders", "ring"},
                                {"leaders", "doubling"},
                                {"lanes/2097152", "ring"},
                                {"lanes/2097152", "doubling"},
                                {"lanes", "ring"}};
  // The sum of two hosts does not depend on their order, so their segments may have any length.
  if (*std::max_element(host_of.begin(), host_of.end()) == 1) {
    all.push_back({"lanes/65536", "ring"});
    all.push_back({"lanes/8388608", "ring"});
  }
  std::vector<Bits> expected;
  for (const MeasuredWays& ways : all) {
    const auto results = results_of(host_of, ways);
    if (expected.empty()) expected = results.front();
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      ASSERT_EQ(results[rank].size(), kSums.size());
      for (std::size_t s = 0; s < kSums.size(); ++s) {
        EXPECT_TRUE(results[rank][s] == expected[s])
            << ways.hosts << ' ' << ways.ring << ": rank " << rank << ", sum " << s;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Topologies, MeasuredBits,
                         testing::Values(std::vector{0, 0, 1, 1}, std::vector{0, 0, 0, 1},
                                         std::vector{0, 0, 0, 1, 1, 2},
                                         std::vector{0, 0, 1, 1, 2, 2}, std::vector{0, 1, 0, 1},
                                         std::vector{0, 1, 2, 2, 1, 0},
                                         std::vector{0, 1, 2, 1, 0, 0, 1}));

}  // namespace
}  // namespace hvd::test
