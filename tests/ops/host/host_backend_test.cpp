// Tests every operation of the host engine, and its failures.
#include <algorithm>
#include <array>
#include <exception>
#include <future>
#include <latch>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include <hvd/core/internal/all_ranks.hpp>
#include <hvd/core/log.hpp>
#include <hvd/core/store.hpp>
#include <hvd/hvd.hpp>

#include "host/host_ranks.hpp"
#include "support/backend_checks.hpp"

namespace hvd::test {
namespace {

constexpr DType kDTypes[] = {DType::u8,  DType::i8,   DType::i16, DType::i32, DType::i64,
                             DType::f16, DType::bf16, DType::f32, DType::f64};

/// Puts every other block into the arena.
class MixedMemory final : public TestMemory {
 public:
  explicit MixedMemory(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {}

  [[nodiscard]] std::byte* put(const Bytes& bytes) override {
    blocks_.emplace_back(blocks_.size() % 2 == 0 ? arena_ : nullptr, bytes.size());
    std::copy(bytes.begin(), bytes.end(), blocks_.back().data());
    return blocks_.back().data();
  }
  [[nodiscard]] Bytes get(const std::byte* data, std::size_t size) override {
    return {data, data + size};
  }

 private:
  std::shared_ptr<Arena> arena_;
  std::vector<Block> blocks_;
};

class HostBackendTest : public testing::TestWithParam<int> {
 protected:
  static void check(const std::function<std::int64_t(BackendChecks&)>& body) {
    expect_host_ranks(GetParam(), [&](int rank, HostEngine& engine) {
      MixedMemory memory(engine.arena);
      BackendChecks checks{*engine.backend, memory, {}, rank, GetParam()};
      EXPECT_EQ(body(checks), 0);
    });
  }
};

TEST_P(HostBackendTest, Allreduce) {
  check([](BackendChecks& checks) {
    std::int64_t wrong = 0;
    for (const DType dtype : kDTypes) {
      for (const bool in_place : {false, true}) {
        wrong += checks.allreduce(dtype, ReduceOp::average, {100, 7}, in_place);
        wrong += checks.allreduce(dtype, ReduceOp::sum, {3'000, 7, 0, 2'000}, in_place);
        wrong += checks.allreduce(dtype, ReduceOp::max, {3'000}, in_place, {2.0, 0.5});
      }
      wrong += checks.allreduce_without_last(dtype, ReduceOp::sum, {50, 3'000, 3});
      wrong += checks.allreduce_without_last(dtype, ReduceOp::average, {5});
    }
    return wrong;
  });
}

TEST_P(HostBackendTest, EverythingElse) {
  check([](BackendChecks& checks) {
    std::int64_t wrong = 0;
    for (const DType dtype : kDTypes) {
      for (const std::int64_t count : {1, 1000, 20'001}) {
        wrong += checks.broadcast(dtype, checks.size - 1, {count, 0, 3});
        wrong += checks.broadcast(dtype, 0, {count});
      }
      wrong += checks.allgather(dtype, {3, -1, 1000});
      wrong += checks.allgather(dtype, {5'000});
      wrong += checks.reducescatter(dtype, ReduceOp::sum, {4, -1, 700});
      wrong += checks.reducescatter(dtype, ReduceOp::average, {2'000});
      wrong += checks.alltoall(dtype, 300);
      wrong += checks.alltoall(dtype, -1);
    }
    for (int i = 0; i < 300; ++i) checks.backend.barrier(soon());
    return wrong;
  });
}

TEST_P(HostBackendTest, SubsetsInTurnAndWithTheWhole) {
  const int n = GetParam();
  const std::vector<int> all = all_ranks(n);
  check([&](BackendChecks& checks) {
    std::int64_t wrong = 0;
    for (int again = 0; again < 2; ++again) {
      wrong += checks.subsets({{0, 1}, {n - 1}, all, {0, n - 1}, {0}});
    }
    return wrong;
  });
}

TEST_P(HostBackendTest, WhatIsAnnouncedComesOrIsForgotten) {
  const int n = GetParam();
  constexpr std::size_t kMost = 100'000;
  const std::vector<int> all = all_ranks(n);
  expect_host_ranks(n, [&](int rank, HostEngine& engine) {
    const Block here(engine.arena, kMost * sizeof(float));
    const Block there(nullptr, kMost * sizeof(float));
    std::mt19937 draw(7);  // the same on every rank
    for (std::uint64_t sequence = 1; sequence <= 300; ++sequence) {
      const std::size_t count = std::array<std::size_t, 5>{1, 10, 600, 6'000, kMost}[draw() % 5];
      const auto where = draw() % 3;  // 0: in the arena; 1: in none; 2: on even ranks only
      const bool resident = where == 2 ? rank % 2 == 0 : where == 0;
      std::byte* const bytes = (resident ? here : there).data();
      const std::span data(reinterpret_cast<float*>(bytes), count);
      const TensorSlice slice{bytes, bytes, static_cast<std::int64_t>(count)};
      const AllreduceCall call{.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::sum};
      const auto value = static_cast<float>(sequence);
      if (draw() % 2 == 0) {
        std::fill(data.begin(), data.end(), value + static_cast<float>(rank));
        engine.backend->announce(call, sequence);
        ASSERT_TRUE(engine.fence->arrive_and_wait(sequence, 0, all));
      } else {
        if ((sequence + static_cast<std::uint64_t>(rank)) % 2 == 0) {  // as if others never came
          std::fill(data.begin(), data.end(), -1.0F);
          engine.backend->announce(call, sequence);
          engine.backend->retract();
          for (int i = 0; i < 20; ++i) std::this_thread::yield();  // no rank may use that message
        }
        std::fill(data.begin(), data.end(), value + static_cast<float>(rank));
      }
      engine.backend->allreduce(call, soon());
      const float sum = static_cast<float>(n) * value + static_cast<float>(n * (n - 1) / 2);
      ASSERT_EQ(std::count(data.begin(), data.end(), sum), std::ssize(data)) << sequence;
    }
  });
}

/// A private tensor of one chunk is copied when it is announced, and the fence tells the other
/// ranks. So after the fence no rank waits for another.
TEST_P(HostBackendTest, WhatIsAnnouncedNeedsNobodyAnyMore) {
  const int n = GetParam();
  const std::size_t count = 3'000;  // 12 KB: beyond what is small
  const std::vector<float> expected(count, static_cast<float>(n * (n - 1) / 2));
  const std::vector<int> all = all_ranks(n);
  for (int first = 0; first < n; ++first) {
    std::latch arrived(n);
    std::latch first_is_through(1);
    expect_host_ranks(n, [&](int rank, HostEngine& engine) {
      std::vector<float> data(count, static_cast<float>(rank));
      auto* const bytes = reinterpret_cast<std::byte*>(data.data());
      const TensorSlice slice{bytes, bytes, std::ssize(data)};
      const AllreduceCall call{.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::sum};
      engine.backend->announce(call, 1);
      EXPECT_TRUE(engine.fence->arrive_and_wait(1, 0, all));
      arrived.arrive_and_wait();
      if (rank != first) first_is_through.wait();
      const auto error = [&] {
        try {
          engine.backend->allreduce(call, soon());
        } catch (...) {
          return std::current_exception();
        }
        return std::exception_ptr();
      }();
      if (rank == first) first_is_through.count_down();
      if (error) std::rethrow_exception(error);
      EXPECT_EQ(data, expected) << "rank " << rank << ", first " << first;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostBackendTest, testing::ValuesIn(rank_counts({3, 4, 5})),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Pair, HostBackendTest, testing::Values(2),
                         testing::PrintToStringParamName());

void sum(Backend& backend, std::vector<float>& data, Deadline deadline) {
  auto* const bytes = reinterpret_cast<std::byte*>(data.data());
  const TensorSlice slice{bytes, bytes, static_cast<std::int64_t>(data.size())};
  backend.allreduce({.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::sum}, deadline);
}

Error error_from(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(Errc::internal, "nothing was thrown");
}

TEST(HostBackend, SubsetsOfASubset) {
  expect_host_ranks(4, [](int rank, HostEngine& engine) {
    if (rank == 0) return engine.backend->barrier(soon());
    {
      const auto three = engine.backend->subset(std::vector<int>{1, 2, 3}, soon());
      std::vector<float> data(10'000, 1);
      sum(*three, data, soon());
      EXPECT_EQ(data, std::vector<float>(10'000, 3));
      if (rank != 2) {
        const auto two = three->subset(std::vector<int>{0, 2}, soon());
        sum(*two, data, soon());
        EXPECT_EQ(data, std::vector<float>(10'000, 6));
      }
    }
    engine.backend->barrier(soon());
  });
}

TEST(HostBackend, SubsetsNeedNoRoomInTheArena) {
  constexpr std::size_t kTiny = std::size_t{1} << 20;
  expect_host_ranks(
      3,
      [](int rank, HostEngine& engine) {
        if (rank == 0) {
          while (engine.arena->allocate(64) != nullptr) {
          }
        }
        const auto all = engine.backend->subset(std::vector<int>{0, 1, 2}, soon());
        std::vector<float> data(10'000, 1);
        sum(*all, data, soon());
        EXPECT_EQ(data, std::vector<float>(10'000, 3));
        all->barrier(soon());
      },
      kTiny);
}

/// This is the error that a program gets from make_context.
TEST(HostBackend, WithoutMemoryTheErrorSaysWhatToDo) {
  const auto store = make_hash_store();
  expect_threads(2, [&](int rank) {
    Config config = thread_config(rank, 2);
    config.arena_size = std::size_t{1} << 47;
    const Error error = error_from([&] { (void)make_context(config, store); });
    EXPECT_EQ(error.code(), Errc::resource);
    for (const char* const part :
         {"bytes of shared memory", "HVD_ARENA_SIZE", "HVD_TRANSPORT=tcp"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  });
}

TEST(HostBackend, NamesWhoDoesNotComeAndKeepsTheError) {
  std::promise<void> over;
  auto done = over.get_future().share();
  expect_host_ranks(2, [&](int rank, HostEngine& engine) {
    if (rank == 1) return done.wait();
    std::vector<float> data(1, 1);
    const Error error = error_from(
        [&] { sum(*engine.backend, data, Clock::now() + std::chrono::milliseconds(150)); });
    EXPECT_EQ(error.code(), Errc::timeout) << error.what();
    EXPECT_EQ(error.fault().rank, 1);
    EXPECT_EQ(error_from([&] { engine.backend->barrier(soon()); }).code(), Errc::timeout);
    over.set_value();
  });
}

TEST(HostBackend, IsAbortedWhereverItWaits) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{100'000}}) {
    std::promise<void> over;
    auto done = over.get_future().share();
    expect_host_ranks(2, [&](int rank, HostEngine& engine) {
      if (rank == 1) return done.wait();
      std::thread other([&] { engine.backend->abort(); });
      std::vector<float> data(count, 1);
      EXPECT_EQ(error_from([&] { sum(*engine.backend, data, soon()); }).code(), Errc::aborted);
      EXPECT_EQ(error_from([&] { sum(*engine.backend, data, soon()); }).code(), Errc::aborted);
      other.join();
      over.set_value();
    });
  }
}

TEST(HostBackend, NoticesAPeerThatLeaves) {
  expect_host_ranks(2, [](int rank, HostEngine& engine) {
    if (rank == 1) {
      engine = {};
      return;
    }
    std::vector<float> data(100'000, 1);
    const Error error = error_from([&] { sum(*engine.backend, data, soon()); });
    EXPECT_EQ(error.code(), Errc::peer_lost) << error.what();
    EXPECT_EQ(error.fault().rank, 1);
  });
}

TEST(HostBackend, NoticesAnotherOperation) {
  const auto errors = run_host_ranks(2, [](int rank, HostEngine& engine) {
    std::vector<float> data(static_cast<std::size_t>(10 + rank), 1);
    sum(*engine.backend, data, soon());
  });
  for (const std::exception_ptr& thrown : errors) {
    ASSERT_TRUE(thrown);
    const Error error = error_from([&] { std::rethrow_exception(thrown); });
    // The rank that comes second may find that the first has left already.
    EXPECT_TRUE(error.code() == Errc::protocol || error.code() == Errc::peer_lost) << error.what();
  }
}

TEST(HostBackend, SaysWhichWayWhichSizeGoes) {
  const auto store = make_hash_store();
  testing::internal::CaptureStderr();
  const auto errors = run_threads(2, [&](int rank) {
    Config config = thread_config(rank, 2);
    config.arena_size = kTestArena;
    config.log_level = LogLevel::plan;
    Session session(config, store);
    const HostEngine engine = make_host_engine(session);
    engine.backend->barrier(soon());
  });
  set_log_level(LogLevel::warn);
  const std::string said = testing::internal::GetCapturedStderr();
  for (const char* const part :
       {"up to 4 KiB in one turn", "from 4096 KiB ", "up to 16 KiB in", "chunks of 256 KiB"}) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  }
  EXPECT_EQ(errors, std::vector<std::exception_ptr>(2));
}

TEST(HostBackend, LeavesTheArenaAsPlainMemory) {
  expect_host_ranks(2, [](int, HostEngine& engine) {
    auto* const data = static_cast<float*>(engine.arena->allocate(400'000));
    std::fill_n(data, 100'000, 1.0F);
    auto* const bytes = reinterpret_cast<std::byte*>(data);
    const TensorSlice slice{bytes, bytes, 100'000};
    engine.backend->allreduce({.tensors = {&slice, 1}, .device = {}, .op = ReduceOp::sum}, soon());
    engine.backend.reset();
    EXPECT_EQ(std::accumulate(data, data + 100'000, 0.0), 200'000.0);
    EXPECT_GT(engine.arena->used(), 0U);
    engine.arena->deallocate(data);
    EXPECT_EQ(engine.arena->used(), 0U);
  });
}

}  // namespace
}  // namespace hvd::test
