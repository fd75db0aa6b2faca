// Tests whole contexts of ranks with GPUs, as `make_context` composes them, on the fake runtime.
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>

#include <hvd/hvd.hpp>

#include "cuda_memory.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "nccl/cuda.hpp"
#include "support/samples.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

/// One rank with its GPU.
struct Rank {
  Context& context;
  CudaMemory& memory;
  int device;

  [[nodiscard]] int number() const { return context.rank(); }

  [[nodiscard]] Work reduce(const std::string& name, DType dtype, ReduceOp op, std::byte* data,
                            std::int64_t count, std::int32_t set = 0) const {
    Submission submission;
    submission.request.name = name;
    submission.request.process_set = set;
    submission.request.dtype = dtype;
    submission.request.op = op;
    submission.request.device = Device{Device::Kind::cuda, device};
    submission.request.shape = {count};
    submission.input = submission.output = data;
    return context.submit(std::move(submission));
  }
  /// Reduces `count` elements that are `mine` on this rank. Every result must be `expected`.
  void expect_reduced(const std::string& name, DType dtype, ReduceOp op, double mine,
                      double expected, std::size_t count = 50, std::int32_t set = 0) const {
    std::byte* const data = memory.put(encode(dtype, std::vector<double>(count, mine)));
    reduce(name, dtype, op, data, static_cast<std::int64_t>(count), set).wait();
    EXPECT_EQ(memory.get(data, count * size_of(dtype)),
              encode(dtype, std::vector<double>(count, expected)))
        << to_string(dtype) << " " << to_string(op) << " on rank " << number();
  }
};

class GpuContext : public ::testing::Test {
 protected:
  ~GpuContext() override { fake_gpu::reset(0); }

  void TearDown() override {
    EXPECT_EQ(fake_gpu::violations(), std::vector<std::string>());
    EXPECT_EQ(fake_gpu::leaks(), std::vector<std::string>());
  }

  static void on_ranks(int ranks, int devices, const std::function<void(Rank)>& body) {
    fake_gpu::reset(devices);
    const auto body_of_rank = [&](Context& context) {
      const int device = context.rank() % devices;
      const DeviceGuard guard(device);
      CudaMemory memory;
      body({context, memory, device});
    };
    threads(ranks, body_of_rank, thread_config(0, ranks));
  }
};

constexpr double kHuge = 4611686018427387904.0;  // 2^62: two of them are no i64

TEST_F(GpuContext, WhatNcclHasNoReductionForIsReducedAllTheSame) {
  on_ranks(3, 3, [](Rank rank) {
    for (int step = 0; step < 5; ++step) {
      rank.expect_reduced("a", DType::f32, ReduceOp::sum, rank.number() + step, 3 + 3 * step);
      rank.expect_reduced("b", DType::i64, ReduceOp::average, kHuge, kHuge);
      rank.expect_reduced("c", DType::i16, ReduceOp::sum, 100 * rank.number(), 300);
      rank.expect_reduced("d", DType::u8, ReduceOp::average, 200 + rank.number(), 201);
      rank.expect_reduced("e", DType::i64, ReduceOp::sum, rank.number(), 3);
    }
  });
  EXPECT_GE(fake_gpu::collectives_run(), 2 * 5 * 3) << "f32 and the sum of i64 are NCCL's";
}

TEST_F(GpuContext, TheErrorForATensorOnAnotherGpuNamesTheRanksOwn) {
  on_ranks(3, 3, [](Rank rank) {
    rank.expect_reduced("first", DType::f32, ReduceOp::sum, 1, 3);
    std::byte* const data = rank.memory.put(Bytes(8));
    Rank lost = rank;
    lost.device = (rank.device + 1) % 3;
    const Error error =
        error_of([&] { (void)lost.reduce("x", DType::f32, ReduceOp::sum, data, 2); });
    EXPECT_EQ(error.code(), Errc::unsupported);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("'x' (f32 sum, cuda:" + std::to_string(lost.device) + ")"),
                      HasSubstr("reduces tensors on cuda:" + std::to_string(rank.device) + ",")));
    rank.expect_reduced("x", DType::f32, ReduceOp::sum, 1, 3);
  });
}

// A program for CPUs makes no context on a GPU, which would take some hundred MB.
TEST_F(GpuContext, WithoutATensorOnAGpuNothingIsStartedThere) {
  fake_gpu::reset(3);
  threads(
      3,
      [](Context& context) {
        const ProcessSet set = context.add_process_set({0, 2});
        std::vector<float> data(10, 1.0F);
        Submission submission;
        submission.request.shape = {10};
        submission.input = submission.output = data.data();
        submission.request.process_set = context.rank() == 1 ? 0 : set.id;
        if (context.rank() != 1) context.run(std::move(submission));
        if (context.rank() == 0) send(std::span(data), 1, {.context = &context});
        if (context.rank() == 1) recv(std::span(data), 0, {.context = &context});
        EXPECT_EQ(data.front(), 2.0F);
        context.remove_process_set(set);
      },
      thread_config(0, 3));
  EXPECT_EQ(fake_gpu::contexts(), std::set<int>());
}

TEST_F(GpuContext, TheFirstTensorDecidesTheGpu) {
  fake_gpu::reset(4);
  threads(
      3,
      [](Context& context) {
        // It exists before NCCL starts, which only its two ranks do.
        const ProcessSet set = context.add_process_set({0, 2});
        const int device = context.rank() + 1;
        const DeviceGuard guard(device);
        CudaMemory memory;
        const Rank rank{context, memory, device};
        if (rank.number() != 1) {
          rank.expect_reduced("in the set", DType::f32, ReduceOp::sum, 1, 2, 50, set.id);
          rank.expect_reduced("through the host", DType::i16, ReduceOp::sum, 1, 2, 50, set.id);
        }
        rank.expect_reduced("of all", DType::f32, ReduceOp::sum, rank.number(), 3);
        context.remove_process_set(set);
      },
      thread_config(0, 3));
  EXPECT_EQ(fake_gpu::contexts(), (std::set<int>{1, 2, 3}));
}

TEST_F(GpuContext, TwoRanksWithTensorsOnOneGpuAreNamed) {
  fake_gpu::reset(2);
  const std::shared_ptr<Store> store = make_hash_store();
  expect_threads(2, [&](int number) {
    const auto context = make_context(thread_config(number, 2), store);
    const DeviceGuard guard(1);
    CudaMemory memory;
    const Rank rank{*context, memory, 1};
    std::byte* const data = memory.put(Bytes(8));
    const Work work = rank.reduce("x", DType::f32, ReduceOp::sum, data, 2);
    const Error error = error_of([&] { work.wait(); });
    EXPECT_EQ(error.code(), Errc::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("ranks 0 and 1 both have tensors on GPU 0000:02:00.0"));
  });
  EXPECT_EQ(fake_gpu::contexts(), std::set<int>{1});
}

TEST_F(GpuContext, TwoRanksOfAProcessSetWithTensorsOnOneGpuAreNamed) {
  fake_gpu::reset(3);
  const std::shared_ptr<Store> store = make_hash_store();
  std::latch over(3);
  expect_threads(3, [&](int number) {
    const auto context = make_context(thread_config(number, 3), store);
    const ProcessSet set = context->add_process_set({1, 2});
    if (number > 0) {
      const DeviceGuard guard(2);
      CudaMemory memory;
      const Rank rank{*context, memory, 2};
      std::byte* const data = memory.put(Bytes(8));
      const Work work = rank.reduce("x", DType::f32, ReduceOp::sum, data, 2, set.id);
      const Error error = error_of([&] { work.wait(); });
      EXPECT_EQ(error.code(), Errc::unsupported);
      EXPECT_THAT(error.what(), HasSubstr("ranks 1 and 2 both have tensors on GPU 0000:03:00.0"));
    }
    over.arrive_and_wait();
  });
}

TEST_F(GpuContext, BothWaysAreInTheAirAndBesideInOneStep) {
  on_ranks(2, 2, [](Rank rank) {
    for (int step = 0; step < 20; ++step) {
      std::vector<std::byte*> data;
      std::vector<Work> works;
      for (int i = 0; i < 9; ++i) {
        const DType dtype = i % 3 == 1 ? DType::i16 : DType::f32;
        data.push_back(rank.memory.put(encode(dtype, std::vector<double>(70, i + step))));
        works.push_back(
            rank.reduce("g" + std::to_string(i), dtype, ReduceOp::sum, data.back(), 70));
      }
      for (int i = 0; i < 9; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const DType dtype = i % 3 == 1 ? DType::i16 : DType::f32;
        works[at].wait();
        EXPECT_EQ(rank.memory.get(data[at], 70 * size_of(dtype)),
                  encode(dtype, std::vector<double>(70, 2 * (i + step))));
      }
    }
    EXPECT_GT(rank.context.stats().freezes, 0U);
  });
}

TEST_F(GpuContext, StepsWithLargeGradientsCopyNothing) {
  on_ranks(2, 2, [](Rank rank) {
    const std::vector<std::int64_t> counts{262'144, 300'000, 17};
    std::vector<std::byte*> data;
    for (const std::int64_t count : counts) {
      const std::vector<double> values(static_cast<std::size_t>(count), 1 + rank.number());
      data.push_back(rank.memory.put(encode(DType::f32, values)));
    }
    constexpr int kSteps = 20;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<Work> works;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        works.push_back(rank.reduce("g" + std::to_string(i), DType::f32, ReduceOp::average, data[i],
                                    counts[i]));
      }
      for (const Work& work : works) work.wait();
    }
    EXPECT_EQ(rank.memory.get(data[2], 17 * sizeof(float)),
              encode(DType::f32, std::vector<double>(17, 1.5)));
    EXPECT_GT(rank.context.stats().freezes, 0U);
    EXPECT_LT(rank.context.stats().collectives, std::uint64_t{3 * kSteps}) << "they are fused";
  });
  EXPECT_EQ(fake_gpu::copied_bytes(), 0U);
  EXPECT_EQ(fake_gpu::calls("launch_copies"), 0);
}

TEST_F(GpuContext, AProcessSetHasBothWays) {
  on_ranks(3, 3, [](Rank rank) {
    rank.expect_reduced("of all", DType::f32, ReduceOp::sum, 1, 3);  // NCCL has started
    const ProcessSet set = rank.context.add_process_set({0, 2});
    if (rank.number() != 1) {
      const auto in_set = [&](const std::string& name, DType dtype, ReduceOp op, double mine) {
        std::byte* const data = rank.memory.put(encode(dtype, {mine}));
        Submission submission;
        submission.request.name = name;
        submission.request.dtype = dtype;
        submission.request.op = op;
        submission.request.process_set = set.id;
        submission.request.device = Device{Device::Kind::cuda, rank.device};
        submission.request.shape = {1};
        submission.input = submission.output = data;
        rank.context.submit(std::move(submission)).wait();
        return rank.memory.get(data, size_of(dtype));
      };
      EXPECT_EQ(in_set("a", DType::f32, ReduceOp::sum, rank.number()), encode(DType::f32, {2}));
      EXPECT_EQ(in_set("b", DType::i64, ReduceOp::average, kHuge), encode(DType::i64, {kHuge}));
    }
    rank.context.remove_process_set(set);
  });
}

TEST_F(GpuContext, WithoutSuchAReductionNothingIsTakenForIt) {
  on_ranks(2, 2, [](Rank rank) {
    rank.expect_reduced("a", DType::f32, ReduceOp::average, 4 * rank.number(), 2);
  });
  EXPECT_EQ(fake_gpu::calls("cudaHostAlloc"), 0);
  EXPECT_EQ(fake_gpu::calls("cudaStreamCreateWithPriority, greatest"), 2) << "one for each rank";
}

// Each rank's GPU has another number. A rank that has joined uses its own in others' operations.
TEST_F(GpuContext, ARankThatHasJoinedTakesPartWithItsOwnGpu) {
  on_ranks(3, 3, [](Rank rank) {
    if (rank.number() > 0) {
      rank.expect_reduced("a", DType::f32, ReduceOp::sum, rank.number(), 3);
      rank.expect_reduced("b", DType::i16, ReduceOp::sum, rank.number(), 3);
    }
    if (rank.number() > 1) rank.expect_reduced("c", DType::f32, ReduceOp::max, -5, -5);
    EXPECT_EQ(rank.context.join(), 2);
  });
}

TEST_F(GpuContext, WhoVanishesIsNamedThoughNcclHangs) {
  constexpr int kLost = 2;
  std::latch submitted(3);
  fake_gpu::reset(3);
  const std::shared_ptr<Store> store = make_hash_store();
  expect_threads(3, [&](int number) {
    const auto context = make_context(thread_config(number, 3), store);
    const DeviceGuard guard(number);
    CudaMemory memory;
    const Rank rank{*context, memory, number};
    rank.expect_reduced("warm", DType::f32, ReduceOp::sum, 1, 3);
    fake_gpu::hang(number);
    std::byte* const data = memory.put(encode(DType::f32, std::vector<double>(10, 1)));
    const Work work = rank.reduce("stuck", DType::f32, ReduceOp::sum, data, 10);
    submitted.arrive_and_wait();
    if (number == kLost) {
      context->disconnect();
      return;
    }
    const auto began = Clock::now();
    const Error error = error_of([&] { work.wait(); });
    EXPECT_LT(Clock::now() - began, seconds(10)) << "by its heartbeats, not by NCCL's deadline";
    EXPECT_EQ(error.code(), Errc::peer_lost);
    EXPECT_EQ(error.fault().rank, kLost);
  });
}

TEST_F(GpuContext, WhoseGpuFailsIsNamedAndNobodyWaits) {
  constexpr int kLost = 1;
  fake_gpu::reset(3);
  const std::shared_ptr<Store> store = make_hash_store();
  expect_threads(3, [&](int number) {
    const auto context = make_context(thread_config(number, 3), store);
    const DeviceGuard guard(number);
    CudaMemory memory;
    const Rank rank{*context, memory, number};
    rank.expect_reduced("warm", DType::f32, ReduceOp::sum, 1, 3);
    std::byte* const data = memory.put(encode(DType::f32, std::vector<double>(10, 1)));
    if (number == kLost) fake_gpu::break_device(number);
    const Work work = rank.reduce("stuck", DType::f32, ReduceOp::sum, data, 10);
    const Error error = error_of([&] { work.wait(); });
    EXPECT_EQ(error.code(), Errc::internal) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("cudaErrorIllegalAddress"));
    EXPECT_EQ(error.fault().rank, kLost) << error.what();
  });
}

TEST_F(GpuContext, AGpuWithoutCodeIsNamed) {
  fake_gpu::reset(2);
  fake_gpu::lack_code(1);
  const std::shared_ptr<Store> store = make_hash_store();
  expect_threads(2, [&](int number) {
    const auto context = make_context(thread_config(number, 2), store);
    const DeviceGuard guard(number);
    CudaMemory memory;
    const Rank rank{*context, memory, number};
    std::byte* const data = memory.put(Bytes(8));
    const Error error =
        error_of([&] { rank.reduce("a", DType::f32, ReduceOp::sum, data, 2).wait(); });
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("no code for cuda:1, a GPU of 6.1"), HasSubstr("7.5, 8.0, 12.0"),
                      HasSubstr("-DHVD_CUDA_ARCHITECTURES=61,"), HasSubstr("-DHVD_WITH_NVCC=OFF")));
  });
}

TEST_F(GpuContext, NcclAloneIsRefusedWhereRanksShareAGpu) {
  fake_gpu::reset(1);
  const std::shared_ptr<Store> store = make_hash_store();
  expect_threads(2, [&](int rank) {
    Config config = thread_config(rank, 2);
    config.backend = "nccl";
    const Error error = error_of([&] { static_cast<void>(make_context(config, store)); });
    EXPECT_EQ(error.code(), Errc::unsupported);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("HVD_BACKEND=nccl"), HasSubstr("GPU of its own")));
  });
}

TEST_F(GpuContext, ASharedGpuIsSaidOnceWithBothRanks) {
  testing::internal::CaptureStderr();
  on_ranks(3, 2, [](Rank rank) {
    rank.expect_reduced("a", DType::f32, ReduceOp::sum, rank.number(), 3);
  });
  const std::string said = testing::internal::GetCapturedStderr();
  const std::string warning = "hvd: [0] warning: ranks 0 and 2 on ";
  EXPECT_THAT(said, AllOf(HasSubstr(warning), HasSubstr(" share GPU 0000:01:00.0"),
                          HasSubstr("pinned host memory")));
  EXPECT_EQ(said.find("share GPU"), said.rfind("share GPU")) << said;
}

}  // namespace
}  // namespace hvd::test
