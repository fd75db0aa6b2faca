// Tests the exchanges of the host engine (broadcast, allgather, reducescatter and alltoall), in
// every way that bytes can go.
#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>
#include <sys/mman.h>

#include "host/allocations.hpp"
#include "host/host_ranks.hpp"
#include "host/rows.hpp"
#include "shm/wait.hpp"
#include "support/backend_checks.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test
using Buffer = std::vector<std::byte>;

TEST(HostRows, WalkThePiecesOfARowAndNotItsEmptyOnes) {
  std::byte memory[32];
  HostRows<std::byte> rows;
  rows.reset(2, 4);
  rows.set(1, 0, nullptr, 0);
  rows.set(1, 1, memory, 10);
  rows.set(1, 2, nullptr, 0);
  rows.set(1, 3, memory + 10, 6);
  EXPECT_EQ(rows.bytes(0), 0U);
  EXPECT_EQ(rows.most(), 16U);

  using Part = std::tuple<std::size_t, std::size_t, std::size_t>;  // piece, offset, bytes
  const auto parts = [&](std::size_t begin, std::size_t end) {
    std::vector<Part> found;
    rows.for_each_part(1, begin, end, [&](auto... part) { found.emplace_back(part...); });
    return found;
  };
  EXPECT_EQ(parts(0, 16), (std::vector<Part>{{1, 0, 10}, {3, 0, 6}}));
  EXPECT_EQ(parts(4, 11), (std::vector<Part>{{1, 4, 6}, {3, 0, 1}}));
  EXPECT_EQ(parts(10, 99), (std::vector<Part>{{3, 0, 6}}));
  EXPECT_EQ(parts(16, 32), std::vector<Part>());
  rows.drop(1);
  EXPECT_EQ(parts(0, 16), std::vector<Part>());
}

TEST(SpinBudget, ShrinksWhileItIsInVainAndGrowsWhenItHelps) {
  SpinBudget budget(160);
  EXPECT_EQ(budget.now(), 160);
  for (int again = 0; again < 10; ++again) budget.came_after(budget.now() + 1);
  EXPECT_EQ(budget.now(), 10);
  budget.came_after(0);  // the event had come already
  EXPECT_EQ(budget.now(), 10);
  for (int again = 0; again < 50; ++again) budget.came_after(5);
  EXPECT_EQ(budget.now(), 160);
  SpinBudget none(0);
  none.came_after(1);
  EXPECT_EQ(none.now(), 0);
}

// Otherwise no wait would spin long enough for events that take a little more than the least.
TEST(SpinBudget, TriesTheMostAgainNowAndThen) {
  SpinBudget budget(160);
  constexpr int kTakes = 40;  // looks
  const auto wait = [&] { budget.came_after(kTakes <= budget.now() ? kTakes : budget.now() + 1); };
  for (int again = 0; again < 10; ++again) budget.came_after(budget.now() + 1);
  EXPECT_EQ(budget.now(), 10);
  for (int again = 0; again < 40; ++again) wait();
  EXPECT_GE(budget.now(), kTakes);
  // While every wait spins in vain, the budget is hardly ever more than the least.
  int spins = 0;
  for (int again = 0; again < 1'000; ++again) {
    spins += budget.now();
    budget.came_after(budget.now() + 1);
  }
  EXPECT_LT(spins, 1'000 * 16);
}

/// Says which blocks lie in the arena.
enum class Where { arena, apart, by_turns, on_odd_ranks };

class PlacedMemory final : public TestMemory {
 public:
  PlacedMemory(std::shared_ptr<Arena> arena, Where where, int rank)
      : arena_(std::move(arena)), where_(where), rank_(rank) {}

  [[nodiscard]] std::byte* put(const Bytes& bytes) override {
    blocks_.emplace_back(in_arena() ? arena_ : nullptr, bytes.size());
    std::copy(bytes.begin(), bytes.end(), blocks_.back().data());
    return blocks_.back().data();
  }
  [[nodiscard]] Bytes get(const std::byte* data, std::size_t size) override {
    return {data, data + size};
  }

 private:
  [[nodiscard]] bool in_arena() const {
    if (where_ == Where::by_turns) return blocks_.size() % 2 == 0;
    return where_ == Where::arena || (where_ == Where::on_odd_ranks && rank_ % 2 == 1);
  }

  std::shared_ptr<Arena> arena_;
  Where where_;
  int rank_;
  std::vector<Block> blocks_;
};

constexpr Where kPlaces[] = {Where::arena, Where::apart, Where::by_turns, Where::on_odd_ranks};

class HostExchangeTest : public testing::TestWithParam<int> {
 protected:
  [[nodiscard]] static int size() { return GetParam(); }

  /// Runs `body`, which returns the number of wrong elements, with memory in each of the places.
  static void check(const std::function<std::int64_t(BackendChecks&)>& body) {
    expect_host_ranks(size(), [&](int rank, HostEngine& engine) {
      for (const Where where : kPlaces) {
        PlacedMemory memory(engine.arena, where, rank);
        BackendChecks checks{*engine.backend, memory, {}, rank, size()};
        EXPECT_EQ(body(checks), 0) << "place " << static_cast<int>(where) << ", rank " << rank;
      }
    });
  }
};

/// With 5'000 every operation takes one chunk, and with 120'000 more chunks than there are slots.
TEST_P(HostExchangeTest, SmallOneChunkAndLongerThanAllSlots) {
  for (const std::int64_t base : {1, 100, 5'000, 120'000}) {
    check([&](BackendChecks& checks) {
      std::int64_t wrong = checks.broadcast(DType::f64, checks.size - 1, {base});
      wrong += checks.allgather(DType::f64, {base});
      wrong += checks.reducescatter(DType::f64, ReduceOp::average, {base / 2});
      wrong += checks.alltoall(DType::f64, base / 2);
      return wrong;
    });
  }
}

TEST_P(HostExchangeTest, FusedTensorsOfAwkwardSizes) {
  check([](BackendChecks& checks) {
    std::int64_t wrong = 0;
    for (const DType dtype : {DType::u8, DType::bf16, DType::i64}) {
      wrong += checks.broadcast(dtype, 0, {1, 0, 70'001, 3, 0, 30'011});
      wrong += checks.allgather(dtype, {-1, 30'011, 0, 1, 17'003});
      wrong += checks.reducescatter(dtype, ReduceOp::max, {-1, 30'011, 0, 1, 17'003});
      wrong += checks.reducescatter(dtype, ReduceOp::sum, {9'001, -1}, {2.0, 0.5});
      wrong += checks.alltoall(dtype, -1);
    }
    return wrong;
  });
}

/// A rank that gives may be ahead of those that take by all its slots, and in the next operation.
TEST_P(HostExchangeTest, OneAfterTheOtherWithoutARest) {
  check([](BackendChecks& checks) {
    std::int64_t wrong = 0;
    for (int turn = 0; turn < 8; ++turn) {
      const std::int64_t base = 700 + 5'000 * (turn % 4);
      wrong += checks.broadcast(DType::f32, turn % checks.size, {base});
      if (turn % 2 == 0) wrong += checks.allreduce(DType::f32, ReduceOp::sum, {base}, true);
      wrong += checks.alltoall(DType::f32, base);
      if (turn % 3 == 0) wrong += checks.allreduce(DType::f32, ReduceOp::sum, {10 * base}, false);
      wrong += checks.allgather(DType::f32, {base});
      wrong += checks.reducescatter(DType::f32, ReduceOp::sum, {base});
    }
    return wrong;
  });
}

/// A message of one turn has no room for the offsets of so many tensors.
TEST_P(HostExchangeTest, MoreTensorsThanATurnTakes) {
  const std::vector<std::int64_t> many(4'100, 3);
  check([&](BackendChecks& checks) {
    return checks.broadcast(DType::f32, 0, many) + checks.allgather(DType::i16, many) +
           checks.reducescatter(DType::f32, ReduceOp::sum, many);
  });
}

/// A reducescatter has the bits of the corresponding parts of an allreduce.
TEST_P(HostExchangeTest, ReducescatterAddsUpInRankOrderWhicheverWay) {
  expect_host_ranks(size(), [](int rank, HostEngine& engine) {
    const auto n = static_cast<std::size_t>(size());
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      for (const std::int64_t part : {5, 3'001, 80'003}) {
        std::vector<std::int64_t> counts(n, part);
        counts[n / 2] = 0;
        const std::int64_t total = part * static_cast<std::int64_t>(n - 1);
        const Buffer values = random_values(dtype, total, static_cast<std::uint64_t>(rank) + 1);
        for (const auto& arena : {engine.arena, std::shared_ptr<Arena>()}) {
          const Block input(arena, values.size());
          std::copy(values.begin(), values.end(), input.data());
          const std::size_t bytes =
              static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]) * size_of(dtype);
          const Block output(nullptr, bytes);
          const ScatterSlice scatter{input.data(), output.data(), counts};
          engine.backend->reducescatter(
              {.tensors = {&scatter, 1}, .device = {}, .dtype = dtype, .op = ReduceOp::average},
              soon());
          EXPECT_TRUE(std::equal(values.begin(), values.end(), input.data()));
          const TensorSlice whole{input.data(), input.data(), total};
          engine.backend->allreduce(
              {.tensors = {&whole, 1}, .device = {}, .dtype = dtype, .op = ReduceOp::average},
              soon());
          const std::size_t before =
              static_cast<std::size_t>(rank - (static_cast<std::size_t>(rank) > n / 2 ? 1 : 0));
          const std::byte* const wanted =
              input.data() + before * static_cast<std::size_t>(part) * size_of(dtype);
          EXPECT_TRUE(std::equal(output.data(), output.data() + bytes, wanted))
              << to_string(dtype) << ' ' << part;
        }
      }
    }
  });
}

/// The last rank has no input and counts as identity elements, like a rank that has joined. All
/// ranks but the first get results.
TEST_P(HostExchangeTest, ReducescatterWithoutDataOrUseForIt) {
  expect_host_ranks(size(), [](int rank, HostEngine& engine) {
    const bool last = rank == size() - 1;
    for (const std::int64_t part : {3, 4'000, 90'000}) {
      for (const auto& arena : {engine.arena, std::shared_ptr<Arena>()}) {
        const std::vector<std::int64_t> counts(static_cast<std::size_t>(size()), part);
        const auto total = static_cast<std::size_t>(part * size());
        const Block input(arena, total * sizeof(float));
        const Block output(arena, static_cast<std::size_t>(part) * sizeof(float));
        std::fill_n(reinterpret_cast<float*>(input.data()), total, 2.0F);
        const ScatterSlice slice{last ? nullptr : input.data(), rank == 0 ? nullptr : output.data(),
                                 counts};
        engine.backend->reducescatter(
            {.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::product}, soon());
        const float wanted = static_cast<float>(1 << (size() - 1));
        const auto* const result = reinterpret_cast<const float*>(output.data());
        for (std::int64_t i = 0; rank != 0 && i < part; ++i) ASSERT_EQ(result[i], wanted) << i;
      }
    }
  });
}

/// Forbids this rank to touch a part of its own memory, for the lifetime of this object.
class Forbidden {
 public:
  Forbidden(std::byte* begin, std::size_t bytes) : begin_(begin), bytes_(bytes) {
    EXPECT_EQ(::mprotect(begin_, bytes_, PROT_NONE), 0);
  }
  ~Forbidden() { EXPECT_EQ(::mprotect(begin_, bytes_, PROT_READ | PROT_WRITE), 0); }
  Forbidden(const Forbidden&) = delete;
  Forbidden& operator=(const Forbidden&) = delete;

 private:
  std::byte* begin_;
  std::size_t bytes_;
};

constexpr std::size_t kPart = std::size_t{256} << 10;  // whole pages, and not small

/// Ranks read in each other's arenas. A rank gives a tensor without touching it, which is forbidden
/// here.
TEST_P(HostExchangeTest, TheArenaIsReadInPlace) {
  expect_host_ranks(size(), [](int rank, HostEngine& engine) {
    const auto n = static_cast<std::size_t>(size());
    const auto self = static_cast<std::size_t>(rank);
    const std::vector<std::int64_t> parts(n, static_cast<std::int64_t>(kPart));
    const Block given(engine.arena, n * kPart);
    const Block taken(nullptr, n * kPart);
    std::fill_n(given.data(), n * kPart, std::byte(rank + 1));
    const auto expect_part = [&](std::size_t part, int value) {
      const std::byte* const from = taken.data() + part * kPart;
      EXPECT_TRUE(std::all_of(from, from + kPart, [&](auto b) { return b == std::byte(value); }));
    };
    engine.backend->barrier(soon());
    {
      const Forbidden mine(given.data() + self * kPart, kPart);
      const TensorSlice slice{given.data() + self * kPart, rank == 0 ? given.data() : taken.data(),
                              static_cast<std::int64_t>(kPart)};
      engine.backend->broadcast({{&slice, 1}, {}, DType::u8, 0}, soon());
    }
    if (rank != 0) expect_part(0, 1);
    {
      const Forbidden mine(given.data(), n * kPart);
      std::vector<std::int64_t> counts = parts;
      counts[self] = 0;
      engine.backend->alltoall({given.data(), taken.data(), counts, counts, {}, DType::u8}, soon());
    }
    for (std::size_t from = 0; from + 1 < n; ++from) {
      expect_part(from, static_cast<int>(from) + (from < self ? 1 : 2));
    }
    {
      const Forbidden before(given.data(), std::max<std::size_t>(self, 1) * kPart);
      const ScatterSlice slice{given.data(), taken.data(), parts};
      if (rank > 0) {
        engine.backend->reducescatter({{&slice, 1}, {}, DType::u8, ReduceOp::max}, soon());
      }
    }
    if (rank == 0) {
      const Forbidden others(given.data() + kPart, (n - 1) * kPart);
      const ScatterSlice slice{given.data(), taken.data(), parts};
      engine.backend->reducescatter({{&slice, 1}, {}, DType::u8, ReduceOp::max}, soon());
    }
    expect_part(0, size());
    {  // in place: the input is already at its place in the output
      const Forbidden mine(given.data() + self * kPart, kPart);
      const GatherSlice slice{given.data() + self * kPart, given.data(), parts};
      engine.backend->allgather({{&slice, 1}, {}, DType::u8}, soon());
    }
    for (std::size_t part = 0; part < n; ++part) {
      EXPECT_EQ(given.data()[part * kPart], std::byte(part + 1));
    }
  });
}

/// Each rank reduces its part of the tensors, in the arenas of all ranks. It does not touch the
/// rest of its own tensors, which is forbidden here.
TEST_P(HostExchangeTest, TheAllreduceHappensInTheArena) {
  expect_host_ranks(size(), [](int rank, HostEngine& engine) {
    const auto n = static_cast<std::size_t>(size());
    const auto self = static_cast<std::size_t>(rank);
    for (const bool in_place : {true, false}) {
      const Block given(engine.arena, n * kPart);
      const Block other(engine.arena, n * kPart);
      const Block& taken = in_place ? given : other;
      std::fill_n(given.data(), n * kPart, std::byte(rank + 1));
      engine.backend->barrier(soon());
      {
        const auto others_of = [&](const Block& block) {
          return std::pair(std::make_unique<Forbidden>(block.data(), self * kPart),
                           std::make_unique<Forbidden>(block.data() + (self + 1) * kPart,
                                                       (n - 1 - self) * kPart));
        };
        const auto of_input = others_of(given);
        const auto of_output = others_of(taken);
        const TensorSlice slice{given.data(), taken.data(), static_cast<std::int64_t>(n * kPart)};
        engine.backend->allreduce(
            {.tensors = {&slice, 1}, .device = {}, .dtype = DType::u8, .op = ReduceOp::sum},
            soon());
      }
      const auto sum = std::byte(size() * (size() + 1) / 2);
      EXPECT_EQ(std::count(taken.data(), taken.data() + n * kPart, sum),
                static_cast<std::ptrdiff_t>(n * kPart));
    }
  });
}

/// Operations of every kind and way allocate nothing after the first ones.
TEST_P(HostExchangeTest, OperationsTakeNothingFromTheHeap) {
  if (!allocations()) GTEST_SKIP() << "needs a heap without a sanitizer";
  expect_host_ranks(size(), [](int rank, HostEngine& engine) {
    const auto n = static_cast<std::size_t>(size());
    for (const std::int64_t part : {std::int64_t{5}, static_cast<std::int64_t>(kPart)}) {
      for (const auto& arena : {engine.arena, std::shared_ptr<Arena>()}) {
        const auto bytes = static_cast<std::size_t>(part);
        const Block from(arena, n * bytes);
        const Block to(arena, n * bytes);
        std::fill_n(from.data(), n * bytes, std::byte{1});
        const std::vector<std::int64_t> parts(n, part);
        const TensorSlice slices[] = {{from.data(), to.data(), part},
                                      {from.data() + bytes, to.data() + bytes, part}};
        const ScatterSlice scatter{from.data(), to.data(), parts};
        const GatherSlice gather{from.data(), to.data(), parts};
        const auto run_all = [&] {
          engine.backend->allreduce(
              {.tensors = slices, .device = {}, .dtype = DType::u8, .op = ReduceOp::max}, soon());
          engine.backend->broadcast({slices, {}, DType::u8, 0}, soon());
          engine.backend->allgather({{&gather, 1}, {}, DType::u8}, soon());
          engine.backend->reducescatter({{&scatter, 1}, {}, DType::u8, ReduceOp::max}, soon());
          engine.backend->alltoall({from.data(), to.data(), parts, parts, {}, DType::u8}, soon());
          engine.backend->barrier(soon());
        };
        run_all();
        const auto before = allocations();
        for (int again = 0; again < 3; ++again) run_all();
        EXPECT_EQ(allocations(), before) << part << " each, rank " << rank;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostExchangeTest, testing::ValuesIn(rank_counts({2, 3, 4, 5})),
                         testing::PrintToStringParamName());

/// Reduces from arena to arena with stores that bypass the cache, and checks every element.
TEST(HostExchange, ReducesMoreThanACacheHolds) {
  constexpr std::int64_t kAll = (std::int64_t{8} << 20) + 4'000;  // bytes of all ranks
  for (const int size : {2, 3}) {
    expect_host_ranks(size, [size](int rank, HostEngine& engine) {
      PlacedMemory memory(engine.arena, Where::arena, rank);
      BackendChecks checks{*engine.backend, memory, {}, rank, size};
      const std::int64_t each = kAll / size / 4;
      EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::sum, {each / 3, each / 3 * 2 + 31}, false),
                0);
      EXPECT_EQ(checks.reducescatter(DType::f32, ReduceOp::average, {each / size, 5}), 0);
    });
  }
}

/// Rank 0 neither gives nor takes, and destroys its engine after the call. The call must not return
/// while the others may still wait, since they would then count rank 0 as lost.
TEST(HostExchange, NobodyLeavesWhileOthersMayHaveToWait) {
  constexpr std::int64_t kMany = 4'000'000;
  for (int again = 0; again < 5; ++again) {
    expect_host_ranks(3, [&](int rank, HostEngine& engine) {
      std::vector<float> from(rank == 1 ? kMany : 0, 1);
      std::vector<float> to(rank == 2 ? kMany : 0, 0);
      const std::vector<std::int64_t> sends{0, 0, rank == 1 ? kMany : 0};
      const std::vector<std::int64_t> receives{0, rank == 2 ? kMany : 0, 0};
      engine.backend->alltoall({reinterpret_cast<const std::byte*>(from.data()),
                                reinterpret_cast<std::byte*>(to.data()),
                                sends,
                                receives,
                                {},
                                DType::f32},
                               soon());
      engine = {};
      EXPECT_EQ(std::count(to.begin(), to.end(), 1.0F), static_cast<std::ptrdiff_t>(to.size()));
    });
  }
}

/// A rank may change its tensors in the arena as soon as its call has returned.
TEST(HostExchange, NobodyReadsAfterTheCall) {
  constexpr std::int64_t kBytes = 3 << 20;
  expect_host_ranks(3, [&](int rank, HostEngine& engine) {
    const Block given(engine.arena, kBytes);
    std::vector<std::byte> taken(3 * kBytes);
    std::vector<std::byte> expected(3 * kBytes);
    for (int turn = 0; turn < 30; ++turn) {
      std::memset(given.data(), turn + 1, kBytes);
      std::memset(expected.data(), turn + 1, expected.size());
      if (turn % 2 == 0) {
        const TensorSlice slice{given.data(), rank == 0 ? given.data() : taken.data(), kBytes};
        engine.backend->broadcast({{&slice, 1}, {}, DType::u8, 0}, soon());
      } else {
        const std::vector<std::int64_t> counts(3, kBytes);
        const GatherSlice slice{given.data(), taken.data(), counts};
        engine.backend->allgather({{&slice, 1}, {}, DType::u8}, soon());
      }
      std::memset(given.data(), 0xFF, kBytes);
      const std::size_t filled = turn % 2 == 0 ? (rank == 0 ? 0 : kBytes) : 3 * kBytes;
      EXPECT_EQ(std::memcmp(taken.data(), expected.data(), filled), 0) << turn;
    }
  });
}

// Tests of failures.

constexpr std::int64_t kCount = 100'000;

/// Returns one call of every kind for two ranks; `each` has the number of floats for each rank.
std::vector<std::function<void(Backend&)>> calls_of_a_pair(std::vector<float>& from,
                                                           std::vector<float>& to,
                                                           const std::vector<std::int64_t>& each) {
  auto* const input = reinterpret_cast<std::byte*>(from.data());
  auto* const output = reinterpret_cast<std::byte*>(to.data());
  return {
      [=](Backend& backend) {
        const TensorSlice slice{input, output, each[0]};
        backend.broadcast({{&slice, 1}, {}, DType::f32, 1}, soon());
      },
      [=](Backend& backend) {
        const GatherSlice slice{input, output, each};
        backend.allgather({{&slice, 1}, {}, DType::f32}, soon());
      },
      [=](Backend& backend) {
        const ScatterSlice slice{input, output, each};
        backend.reducescatter({{&slice, 1}, {}, DType::f32, ReduceOp::sum}, soon());
      },
      [=](Backend& backend) {
        backend.alltoall({input, output, each, each, {}, DType::f32}, soon());
      },
  };
}

TEST(HostExchange, IsAbortedWhereverItWaits) {
  for (std::size_t call = 0; call < 4; ++call) {
    for (const std::int64_t count : {std::int64_t{2}, kCount}) {
      std::promise<void> over;
      auto done = over.get_future().share();
      expect_host_ranks(2, [&](int rank, HostEngine& engine) {
        if (rank == 1) return done.wait();
        std::vector<float> from(2 * kCount, 1);
        std::vector<float> to(2 * kCount, 1);
        const auto calls = calls_of_a_pair(from, to, {count, count});
        std::thread other([&] { engine.backend->abort(); });
        EXPECT_EQ(error_of([&] { calls[call](*engine.backend); }).code(), Errc::aborted);
        other.join();
        over.set_value();
      });
    }
  }
}

TEST(HostExchange, NoticesAnotherOperation) {
  for (std::size_t call = 0; call < 4; ++call) {
    const auto errors = run_host_ranks(2, [&](int rank, HostEngine& engine) {
      std::vector<float> from(2 * kCount, 1);
      std::vector<float> to(2 * kCount, 1);
      const auto calls = calls_of_a_pair(from, to, {kCount, kCount});
      calls[(call + static_cast<std::size_t>(rank)) % 4](*engine.backend);
    });
    for (const std::exception_ptr& thrown : errors) {
      ASSERT_TRUE(thrown);
      const Error error = error_of([&] { std::rethrow_exception(thrown); });
      // The rank that comes second may find that the first has left already.
      EXPECT_TRUE(error.code() == Errc::protocol || error.code() == Errc::peer_lost)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace hvd::test
