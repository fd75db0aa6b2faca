// The NCCL backend's real source on a fake NCCL and CUDA runtime: ranks are threads, one device
// each.
#include "nccl/nccl_backend.hpp"

#include <memory>
#include <thread>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include "cuda_memory.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "nccl/device_guard.hpp"
#include "nccl_checks.hpp"

namespace hvd::test {
namespace {

using std::chrono::milliseconds;

class NcclBackendTest : public ::testing::TestWithParam<int> {
 protected:
  NcclBackendTest() {
    fake_gpu::reset(ranks());
    EXPECT_EQ(ncclGetUniqueId(&id_), ncclSuccess);
  }
  ~NcclBackendTest() override { fake_gpu::reset(0); }

  void TearDown() override {
    EXPECT_EQ(fake_gpu::violations(), std::vector<std::string>());
    EXPECT_EQ(fake_gpu::leaks(), std::vector<std::string>());
  }

  [[nodiscard]] static int ranks() { return GetParam(); }

  [[nodiscard]] std::unique_ptr<NcclBackend> make_backend(int rank) const {
    return std::make_unique<NcclBackend>(NcclPlace{rank, ranks(), rank}, id_, soon());
  }

  /// Runs `body` on one thread per rank, each with a backend and memory on its device.
  void on_all_ranks(const std::function<void(BackendChecks)>& body) const {
    expect_threads(ranks(), [&](int rank) {
      const auto backend = make_backend(rank);
      const DeviceGuard guard(rank);
      CudaMemory memory;
      body({*backend, memory, Device{Device::Kind::cuda, rank}, rank, ranks()});
    });
  }

  ncclUniqueId id_{};
};

/// The code of what `call` throws, which must come within the time of a test, not of a deadline.
template <class Call>
Errc code_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return Errc::internal;
}

TEST_P(NcclBackendTest, Reduces) {
  on_all_ranks(check_every_reduction);
  EXPECT_GT(fake_gpu::collectives_run(), 0);
}
TEST_P(NcclBackendTest, Scales) { on_all_ranks(check_scales); }
TEST_P(NcclBackendTest, Broadcasts) { on_all_ranks(check_broadcasts); }
TEST_P(NcclBackendTest, Gathers) { on_all_ranks(check_allgathers); }
TEST_P(NcclBackendTest, ReducesAndScatters) { on_all_ranks(check_reducescatters); }
TEST_P(NcclBackendTest, SendsPartsToAll) { on_all_ranks(check_alltoalls); }
TEST_P(NcclBackendTest, WorksWithRanksThatHaveNothing) { on_all_ranks(check_absent_ranks); }
TEST_P(NcclBackendTest, RefusesWhatNcclCannotDo) { on_all_ranks(check_refusals); }

TEST_P(NcclBackendTest, FusedTensorsShareOneCollective) {
  on_all_ranks([](BackendChecks checks) {
    EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::sum, {1, 2, 3, 4, 5}, true), 0);
  });
  EXPECT_EQ(fake_gpu::collectives_run(), ranks());
}

TEST_P(NcclBackendTest, NobodyLeavesABarrierBeforeTheLastHasCome) {
  std::atomic<int> arrived{0};
  on_all_ranks([&](BackendChecks checks) {
    for (int i = 1; i <= 5; ++i) {
      ++arrived;
      checks.backend.barrier(soon());
      EXPECT_GE(arrived, i * ranks());
    }
  });
}

TEST_P(NcclBackendTest, SupportsItsOwnDeviceOnly) {
  on_all_ranks([](BackendChecks checks) {
    const Device other{Device::Kind::cuda, checks.device.index + 1};
    EXPECT_TRUE(
        checks.backend.supports(OpKind::broadcast, checks.device, DType::i16, ReduceOp::sum));
    EXPECT_FALSE(checks.backend.supports(OpKind::broadcast, other, DType::f32, ReduceOp::sum));
    EXPECT_FALSE(checks.backend.supports(OpKind::broadcast, Device{}, DType::f32, ReduceOp::sum));
  });
}

TEST_P(NcclBackendTest, TheCallersDeviceStaysCurrent) {
  on_all_ranks([](BackendChecks checks) {
    const DeviceGuard guard(0);
    checks.backend.barrier(soon());
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 0);
  });
}

TEST_P(NcclBackendTest, EqualPartsAreScatteredByOneCollective) {
  on_all_ranks([](BackendChecks checks) {
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(checks.size), 3);
    std::byte* const input = checks.memory.put(Bytes(static_cast<std::size_t>(checks.size) * 12));
    const std::vector<ScatterSlice> slices{{input, checks.memory.put(Bytes(12)), counts}};
    checks.backend.reducescatter({slices, checks.device}, soon());
  });
  EXPECT_EQ(fake_gpu::collectives_run(), ranks());
}

TEST_P(NcclBackendTest, CallsMayComeFromDifferentThreads) {
  on_all_ranks([](BackendChecks checks) {
    for (int i = 0; i < 3; ++i) {
      // A new thread's device is the first one, whatever the rank's.
      std::thread([&] { checks.backend.barrier(soon()); }).join();
      std::thread([&] {
        const std::vector<TensorSlice> absent{{nullptr, nullptr, 9}};
        checks.backend.allreduce({absent, checks.device}, soon());
      }).join();
    }
  });
}

TEST_P(NcclBackendTest, SubsetsOverlapAndWorkInTurn) {
  on_all_ranks([](BackendChecks checks) {
    std::vector<std::vector<int>> groups{{0}};
    if (checks.size > 1) groups.push_back({0, 1});
    if (checks.size > 2) groups.insert(groups.end(), {{1, 2}, {0, 2}, {0, 1, 2}});
    EXPECT_EQ(checks.subsets(groups), 0);
  });
}

TEST_P(NcclBackendTest, ASubsetIsAbortedWithTheWhole) {
  on_all_ranks([](BackendChecks checks) {
    const auto alone = checks.backend.subset(std::vector<int>{checks.rank}, soon());
    checks.backend.abort();
    EXPECT_EQ(code_of([&] { alone->barrier(soon()); }), Errc::aborted);
    EXPECT_EQ(code_of([&] { checks.backend.barrier(soon()); }), Errc::aborted);
  });
}

TEST_P(NcclBackendTest, ASubsetWaitsForItsMembersUntilTheDeadline) {
  if (ranks() == 1) return;
  on_all_ranks([](BackendChecks checks) {
    if (checks.rank != 0) return;
    const std::vector<int> pair{0, 1};
    EXPECT_EQ(code_of([&] {
                static_cast<void>(checks.backend.subset(pair, Clock::now() + milliseconds(100)));
              }),
              Errc::timeout);
  });
}

TEST_P(NcclBackendTest, AbortEndsACollectiveThatHangs) {
  on_all_ranks([](BackendChecks checks) {
    fake_gpu::hang(checks.rank);
    std::thread aborter([&] { checks.backend.abort(); });
    EXPECT_EQ(
        code_of([&] { static_cast<void>(checks.allreduce(DType::f32, ReduceOp::sum, {9}, true)); }),
        Errc::aborted);
    aborter.join();
    EXPECT_EQ(code_of([&] { checks.backend.barrier(soon()); }), Errc::aborted);
  });
}

TEST_P(NcclBackendTest, ADeadlineEndsACollectiveThatHangs) {
  on_all_ranks([](BackendChecks checks) {
    fake_gpu::hang(checks.rank);
    const auto began = Clock::now();
    EXPECT_EQ(code_of([&] { checks.backend.barrier(Clock::now() + milliseconds(50)); }),
              Errc::timeout);
    EXPECT_GE(Clock::now() - began, milliseconds(50));
    EXPECT_EQ(code_of([&] { checks.backend.barrier(soon()); }), Errc::timeout)
        << "the first sticks";
  });
}

TEST_P(NcclBackendTest, WhatNcclFindsOutIsReported) {
  on_all_ranks([](BackendChecks checks) {
    fake_gpu::fail(checks.rank, ncclRemoteError);
    try {
      checks.backend.barrier(soon());
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::peer_lost);
      EXPECT_EQ(error.fault().phase, "barrier");
      EXPECT_NE(error.fault().cause.find("remote process exited"), std::string::npos);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclBackendTest, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

class NcclStartTest : public ::testing::Test {
 protected:
  ~NcclStartTest() override { fake_gpu::reset(0); }
};

TEST_F(NcclStartTest, ARankThatDoesNotComeIsATimeout) {
  fake_gpu::reset(2);
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  EXPECT_EQ(code_of([&] {
              NcclBackend({0, 2, 0}, id, Clock::now() + milliseconds(50));
            }),
            Errc::timeout);
  EXPECT_EQ(fake_gpu::violations(), std::vector<std::string>());
  EXPECT_EQ(fake_gpu::leaks(), std::vector<std::string>());
}

TEST_F(NcclStartTest, DifferentCallsAreAnError) {
  fake_gpu::reset(2);
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  expect_threads(2, [&](int rank) {
    NcclBackend backend({rank, 2, rank}, id, soon());
    const DeviceGuard guard(rank);
    CudaMemory memory;
    BackendChecks checks{backend, memory, Device{Device::Kind::cuda, rank}, rank, 2};
    EXPECT_EQ(code_of([&] {
                static_cast<void>(checks.allreduce(DType::f32, ReduceOp::sum, {4 + rank}, true));
              }),
              Errc::internal);
  });
  EXPECT_EQ(fake_gpu::violations(), std::vector<std::string>{"ranks made different NCCL calls"});
}

}  // namespace
}  // namespace hvd::test
