// Tests that the ring adds up host by host, whatever ranks the hosts have.
#include <algorithm>
#include <cstddef>
#include <mutex>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>

#include "ring/ring_backend.hpp"
#include "transports.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test
using Bits = std::vector<std::byte>;

constexpr std::int64_t kCount = 5'003;

/// Returns the sum that each rank gets. Rank r contributes random values of the seed `seed_of[r]`.
std::vector<Bits> sums(DType dtype, const char* ways, const std::vector<int>& host_of,
                       const std::vector<int>& seed_of) {
  std::vector<Bits> results(seed_of.size());
  std::mutex mutex;
  const int size = static_cast<int>(seed_of.size());
  expect_ranks(Kind::in_process, size, [&](int rank, std::unique_ptr<Transport> transport) {
    RingBackend backend(std::move(transport), host_of);
    backend.use(AlgorithmTable::parse(ways));
    const auto place = static_cast<std::size_t>(rank);
    Bits data = random_values(dtype, kCount, static_cast<std::uint64_t>(seed_of[place]));
    const TensorSlice slice{data.data(), data.data(), kCount};
    backend.allreduce({{&slice, 1}, {}, dtype, ReduceOp::sum}, soon());
    const std::lock_guard lock(mutex);
    results[place] = std::move(data);
  });
  return results;
}

class RingByHost : public testing::TestWithParam<std::vector<int>> {};

TEST_P(RingByHost, ASumHasTheBitsOfRanksThatStandInItsOrder) {
  const std::vector<int>& host_of = GetParam();
  const RingOrder order = order_by_host(host_of);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Bits expected = sums(dtype, "ring", {}, order.ranks).front();
    std::vector<int> by_rank(order.ranks);
    std::sort(by_rank.begin(), by_rank.end());
    for (const char* const ways : {"ring", "doubling"}) {
      for (const Bits& result : sums(dtype, ways, host_of, by_rank)) {
        EXPECT_TRUE(result == expected) << to_string(dtype) << ' ' << ways;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, RingByHost,
                         testing::Values(std::vector{0, 0, 1, 1}, std::vector{0, 1, 0, 1},
                                         std::vector{0, 1, 1, 0, 1}, std::vector{0, 1, 2, 2, 1, 0},
                                         std::vector{0, 1, 2, 0, 1, 2, 0}));

TEST(RingByHostTest, HostsOfOtherRanksAreRefused) {
  auto transports = make_in_process_transports(1);
  const Error error = error_of([&] {
    const RingBackend backend(std::move(transports.front()), {0, 1});
  });
  EXPECT_EQ(error.code(), Errc::invalid_argument);
}

}  // namespace
}  // namespace hvd::test
