// Tests more than 2^31 elements: every operation of every engine of host memory, and whole
// contexts.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include <hvd/hvd.hpp>

#include "support/engines.hpp"
#include "support/large.hpp"

namespace hvd::test {
namespace {

/// Returns the bytes that programs can still allocate, as the kernel estimates them.
std::int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    std::int64_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib << 10;
  }
  return 0;
}

/// Tests that need little memory.
class LargeCounts : public testing::TestWithParam<std::tuple<Engine, int>> {
 protected:
  static void expect_right(DType dtype, std::int64_t (LargeChecks::*check)() const) {
    const auto& [engine, ranks] = GetParam();
    engine.run(ranks, 0, [&, size = ranks](int rank, Backend& backend, const auto&) {
      const LargeChecks checks{backend, dtype, rank, size};
      EXPECT_EQ((checks.*check)(), 0) << "wrong elements on rank " << rank;
    });
  }
};

std::string name_of(const testing::TestParamInfo<std::tuple<Engine, int>>& one) {
  return std::get<0>(one.param).name;
}

// With two ranks, or on two hosts, no engine puts partial sums where its results go.
const std::tuple<Engine, int> kTcp{Engine{"tcp", Engine::Made::ring, Kind::tcp}, 2};
const std::tuple<Engine, int> kHosts{Engine{"hosts", Engine::Made::hosts}, 4};
const std::tuple<Engine, int> kPrivate{Engine{"private", Engine::Made::host_private}, 2};

INSTANTIATE_TEST_SUITE_P(Engines, LargeCounts, testing::Values(kTcp, kHosts), name_of);
TEST_P(LargeCounts, Allreduce) { expect_right(DType::u8, &LargeChecks::allreduce); }

/// Engines that stage no more of an operation than they move.
class LargePartCounts : public LargeCounts {};
INSTANTIATE_TEST_SUITE_P(Engines, LargePartCounts, testing::Values(kTcp, kPrivate), name_of);

TEST_P(LargePartCounts, AllreduceOfMoreBytesThan32BitsCount) {
  expect_right(DType::i16, &LargeChecks::allreduce);
}
TEST_P(LargePartCounts, Broadcast) { expect_right(DType::u8, &LargeChecks::broadcast); }
TEST_P(LargePartCounts, Allgather) { expect_right(DType::u8, &LargeChecks::allgather); }
TEST_P(LargePartCounts, Reducescatter) { expect_right(DType::u8, &LargeChecks::reducescatter); }
TEST_P(LargePartCounts, Alltoall) { expect_right(DType::u8, &LargeChecks::alltoall); }

TEST(LargeArena, AllreduceInPlaceIsRight) {
  constexpr std::int64_t kNeeded = std::int64_t{6} << 30;
  if (available_memory() < kNeeded) GTEST_SKIP() << "needs 6 GiB of memory";
  constexpr std::size_t kArena = (std::size_t{2} << 30) + (std::size_t{64} << 20);
  constexpr std::size_t kPattern = (std::size_t{1} << 20) + 7;
  const auto pattern_of = [](auto value) {
    std::vector<std::byte> pattern(kPattern);
    for (std::size_t i = 0; i < kPattern; ++i) pattern[i] = std::byte(value(i));
    return pattern;
  };
  const auto value = [](std::size_t i, std::size_t rank) { return (i * 31 + rank * 85) % 251; };
  const Engine engine{"arena", Engine::Made::host_arena};
  engine.run(
      2, 0,
      [&](int rank, Backend& backend, const std::shared_ptr<Arena>& arena) {
        const Block block(arena, kLarge);
        const auto for_each_part = [&](auto fn) {
          constexpr auto kEnd = static_cast<std::size_t>(kLarge);
          for (std::size_t at = 0; at < kEnd; at += kPattern) {
            fn(block.data() + at, std::min(kPattern, kEnd - at));
          }
        };
        const auto own =
            pattern_of([&](std::size_t i) { return value(i, static_cast<std::size_t>(rank)); });
        const auto wanted =
            pattern_of([&](std::size_t i) { return std::max(value(i, 0), value(i, 1)); });
        for_each_part([&](std::byte* at, std::size_t size) { std::memcpy(at, own.data(), size); });
        const TensorSlice slice{block.data(), block.data(), kLarge};
        backend.allreduce({{&slice, 1}, {}, DType::u8, ReduceOp::max},
                          Clock::now() + std::chrono::seconds(100));
        int wrong = 0;
        for_each_part([&](const std::byte* at, std::size_t size) {
          wrong += std::memcmp(at, wanted.data(), size) != 0;
        });
        EXPECT_EQ(wrong, 0) << "parts on rank " << rank;
      },
      kArena);
}

TEST(LargeContext, ReducesAndBroadcastsInPlace) {
  const auto store = make_hash_store();
  expect_threads(2, [&](int rank) {
    Config config = thread_config(rank, 2);
    config.collective_timeout = std::chrono::seconds(100);
    const auto context = make_context(config, store);
    const LargeTensor tensor(DType::u8, kLarge);
    auto* const data = reinterpret_cast<unsigned char*>(tensor.data());
    const auto wrong = [&](auto value) {
      std::int64_t count = 0;
      tensor.for_each([&](std::int64_t i) { count += data[i] != value(i); });
      return count;
    };
    const auto fill = [&] {
      tensor.for_each([&](std::int64_t i) {
        data[i] = static_cast<unsigned char>(large_value(DType::u8, rank, i));
      });
    };
    fill();
    allreduce(data, data, kLarge, DType::u8, {.op = ReduceOp::max, .context = context.get()});
    EXPECT_EQ(wrong([](std::int64_t i) { return largest_value(DType::u8, 2, i); }), 0);
    fill();
    broadcast(data, kLarge, DType::u8, 1, {.context = context.get()});
    EXPECT_EQ(wrong([](std::int64_t i) { return large_value(DType::u8, 1, i); }), 0);
    context->shutdown();
  });
}

}  // namespace
}  // namespace hvd::test
