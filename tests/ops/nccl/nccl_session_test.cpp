// Tests how the ranks of a session agree on GPUs and on NCCL, on the fake runtime.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>
#include <unistd.h>

#include <hvd/core/internal/session.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "../../core/idle_backend.hpp"
#include "cuda_memory.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "nccl/cuda.hpp"
#include "nccl/gpu_choice.hpp"
#include "nccl/nccl_backend.hpp"
#include "nccl/nccl_features.hpp"
#include "nccl/pinned_backend.hpp"
#include "nccl_checks.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test

class NcclSessionTest : public ::testing::Test {
 protected:
  ~NcclSessionTest() override { fake_gpu::reset(0); }

  void TearDown() override {
    EXPECT_EQ(fake_gpu::violations(), std::vector<std::string>());
    EXPECT_EQ(fake_gpu::leaks(), std::vector<std::string>());
  }

  /// Runs `body` on one thread per rank with a session of its own.
  static void on_sessions(int ranks, int devices, const std::function<void(Session&, int)>& body) {
    fake_gpu::reset(devices);
    const std::shared_ptr<Store> store = make_hash_store();
    expect_threads(ranks, [&](int rank) {
      Session session(thread_config(rank, ranks), store);
      body(session, rank);
    });
  }

  /// Runs `body` with the backend of two ranks that have the same GPU.
  static void on_a_shared_gpu(const std::function<void(BackendChecks&)>& body) {
    Hosts hosts(2);
    on_sessions(2, 1, [&](Session& session, int rank) {
      const auto backends = make_nccl_backends(session, hosts[rank]);
      ASSERT_EQ(backends.size(), 1U);
      const DeviceGuard guard(0);
      CudaMemory memory;
      BackendChecks checks{*backends.front(), memory, Device{Device::Kind::cuda, 0}, rank, 2};
      body(checks);
    });
  }
};

TEST_F(NcclSessionTest, EveryRankTakesTheDeviceOfItsLocalRank) {
  on_sessions(3, 4, [](Session& session, int rank) {
    const auto choice = choose_gpu(session);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->device, rank);
    EXPECT_FALSE(choice->shared);
  });
}

TEST_F(NcclSessionTest, NoBackendWithoutAGpu) {
  Hosts hosts(2);
  on_sessions(2, 0, [&](Session& session, int rank) {
    EXPECT_TRUE(make_nccl_backends(session, hosts[rank]).empty());
  });
}

TEST_F(NcclSessionTest, AnErrorOfTheDriverIsToldByTheRankThatHasIt) {
  const auto said_about = [](cudaError_t error) {
    testing::internal::CaptureStderr();
    Hosts hosts(2);
    on_sessions(2, 2, [&](Session& session, int rank) {
      fake_gpu::refuse_count(error);
      EXPECT_TRUE(make_nccl_backends(session, hosts[rank]).empty());
      EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "an error is left behind";
    });
    return testing::internal::GetCapturedStderr();
  };
  const auto warning = testing::HasSubstr(
      "hvd: [1] warning: sees no GPU: cudaGetDeviceCount: an error of the fake CUDA runtime");
  EXPECT_THAT(said_about(cudaErrorSystemDriverMismatch), warning);
  EXPECT_EQ(said_about(cudaErrorNoDevice), "");
  // This comes from an old driver, and where there is none.
  const bool has_driver = std::filesystem::exists("/dev/nvidiactl");
  const std::string said = said_about(cudaErrorInsufficientDriver);
  if (has_driver) {
    EXPECT_THAT(said, warning);
  } else {
    EXPECT_EQ(said, "");
  }
}

TEST_F(NcclSessionTest, RanksThatShareAGpuGoThroughTheHost) {
  Hosts hosts(3);
  on_sessions(3, 2, [&](Session& session, int rank) {
    const auto backends = make_nccl_backends(session, hosts[rank]);
    ASSERT_EQ(backends.size(), 1U);
    const auto& backend = backends.front();
    EXPECT_EQ(backend->name(), "pinned");
    const int device = rank % 2;
    const DeviceGuard guard(device);
    CudaMemory memory;
    BackendChecks checks{*backend, memory, Device{Device::Kind::cuda, device}, rank, 3};
    EXPECT_TRUE(backend->supports(OpKind::allreduce, checks.device, DType::i16, ReduceOp::average));
    EXPECT_FALSE(backend->supports(OpKind::allreduce, Device{}, DType::f32, ReduceOp::sum));
    check_every_reduction(checks);
    check_scales(checks);
    check_integer_scales(checks);
    check_conversions(checks);
    check_broadcasts(checks);
    check_allgathers(checks);
    check_reducescatters(checks);
    check_alltoalls(checks);
    check_absent_ranks(checks);
    EXPECT_EQ(checks.subsets({{0, 2}, {1, 2}, {0, 1, 2}}), 0);
    backend->barrier(soon());
    backend->abort();
    EXPECT_THROW(backend->barrier(soon()), Error);
  });
  EXPECT_EQ(fake_gpu::calls("ncclMemAlloc"), 0);
}

// Whether two processes can share a real GPU is shown by scripts/gpu_proof.
TEST_F(NcclSessionTest, ProcessesHaveGpusOfTheirOwnWhereNcclLetsThemShare) {
  constexpr auto kVariable = "NCCL_MULTI_RANK_GPU_ENABLE";
  fake_gpu::reset(1);
  const std::string plain = name_of_gpu(0);
  ::setenv(kVariable, "1", 1);
  EXPECT_EQ(name_of_gpu(0), plain) << "NCCL is too old";
  fake_gpu::let_ranks_share();
  EXPECT_EQ(name_of_gpu(0), plain + " of process " + std::to_string(::getpid()));
  ::setenv(kVariable, "0", 1);
  EXPECT_EQ(name_of_gpu(0), plain);
  ::unsetenv(kVariable);
  EXPECT_EQ(name_of_gpu(0), plain);
}

TEST_F(NcclSessionTest, TheHostsWayIsOneLaunchIntoPinnedMemoryAndOneBack) {
  on_a_shared_gpu([](BackendChecks& checks) {
    EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::sum, {100, 0, 3, 40}, true), 0);
  });
  EXPECT_EQ(fake_gpu::calls("launch_copies"), 4);
  EXPECT_EQ(fake_gpu::calls("cudaMemcpyAsync"), 0);
}

/// Notes for each allreduce how many copies the device has been given.
class CountingHost final : public IdleBackend {
 public:
  void allreduce(const AllreduceCall& call, Deadline) override {
    copies.push_back(fake_gpu::calls("launch_copies"));
    for (const TensorSlice& tensor : call.tensors) counts.push_back(tensor.count);
  }
  std::vector<int> copies;
  std::vector<std::int64_t> counts;
};

// The device copies the next stage to pinned memory, and the previous one back, while the host
// reduces.
TEST_F(NcclSessionTest, TheHostReducesLargeTensorsInStages) {
  fake_gpu::reset(1);
  const DeviceGuard guard(0);
  CountingHost host;
  PinnedBackend backend({0, 1, 0}, host, make_kernel_copier());
  CudaMemory memory;
  const std::vector<std::int64_t> counts{1 << 19, 100, 1 << 20, 1 << 18, 1 << 18, 7};
  BackendChecks checks{backend, memory, Device{Device::Kind::cuda, 0}, 0, 1};
  EXPECT_EQ(checks.allreduce(DType::f64, ReduceOp::sum, counts, true), 0);
  EXPECT_EQ(host.copies, (std::vector<int>{2, 4, 6, 7}));
  EXPECT_EQ(host.counts, counts);
  EXPECT_EQ(fake_gpu::calls("launch_copies"), 8);
}

TEST_F(NcclSessionTest, EveryStageHasItsOwnTensorsAndWaitsForThem) {
  on_a_shared_gpu([](BackendChecks& checks) {
    const std::vector<std::int64_t> counts{1 << 19, 100, (1 << 19) + 3, 7, 1 << 19, 5};
    for (const bool in_place : {true, false}) {
      EXPECT_EQ(checks.allreduce(DType::f64, ReduceOp::sum, counts, in_place), 0);
    }
    EXPECT_EQ(checks.broadcast(DType::f64, 1, counts), 0);
    EXPECT_EQ(checks.allreduce_without_last(DType::f64, ReduceOp::sum, counts), 0);
  });
}

TEST_F(NcclSessionTest, RanksMeetThroughTheStore) {
  Hosts hosts(4);
  on_sessions(4, 4, [&](Session& session, int rank) {
    const auto backends = make_nccl_backends(session, hosts[rank]);
    ASSERT_EQ(backends.size(), 2U);
    EXPECT_EQ(backends.front()->name(), "nccl");
    EXPECT_EQ(backends.back()->name(), "pinned");
    const DeviceGuard guard(rank);
    CudaMemory memory;
    BackendChecks checks{*backends.front(), memory, Device{Device::Kind::cuda, rank}, rank, 4};
    EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::average, {100, 3}, true), 0);
  });
}

TEST_F(NcclSessionTest, TheStartMayTakeLongerThanACollective) {
  Hosts hosts(2);
  on_sessions(2, 2, [&](Session& session, int rank) {
    const auto backends = make_nccl_backends(session, hosts[rank]);
    ASSERT_EQ(backends.size(), 2U);
    backends.front()->barrier(Clock::now());
    EXPECT_EQ(error_of([&] { backends.front()->barrier(Clock::now()); }).code(), Errc::timeout);
  });
}

TEST_F(NcclSessionTest, WhatNcclReducesAndWhatNotDependsOnTheRequestAlone) {
  Hosts hosts(2);
  on_sessions(2, 2, [&](Session& session, int rank) {
    const auto backends = make_nccl_backends(session, hosts[rank]);
    ASSERT_EQ(backends.size(), 2U);
    for (const OpKind kind : {OpKind::allreduce, OpKind::reducescatter}) {
      for (const DType dtype : kAllDTypes) {
        for (const ReduceOp op : kAllOps) {
          const bool exact = op != ReduceOp::average || is_floating(dtype);
          const Device device{Device::Kind::cuda, rank};
          EXPECT_EQ(backends.front()->supports(kind, device, dtype, op),
                    exact && dtype != DType::i16)
              << to_string(dtype) << " " << to_string(op);
          EXPECT_TRUE(backends.back()->supports(kind, device, dtype, op) ||
                      (dtype == DType::boolean && op == ReduceOp::average));
        }
      }
    }
  });
}

// The backend of four ranks is asked also on behalf of a process set of three of them, and it does
// not know the scales.
TEST_F(NcclSessionTest, WithoutNvccNcclReducesOnlyWhatItReducesRightInEveryCase) {
  Hosts hosts(4);
  fake_gpu::reset(4);
  const NcclBackend backend(GpuRank{0, 4, 0}, hosts[0], make_plain_copier());
  for (const OpKind kind : {OpKind::allreduce, OpKind::reducescatter}) {
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kAllOps) {
        EXPECT_EQ(backend.supports(kind, Device{Device::Kind::cuda, 0}, dtype, op),
                  dtype == DType::f32 || dtype == DType::f64)
            << to_string(dtype) << " " << to_string(op);
      }
    }
  }
}

TEST_F(NcclSessionTest, OurStreamsGoBeforeTheProgramsOwn) {
  Hosts hosts(2);
  on_sessions(2, 2, [&](Session& session, int rank) {
    const auto backends = make_nccl_backends(session, hosts[rank]);
    ASSERT_EQ(backends.size(), 2U);
    for (const auto& backend : backends) backend->barrier(soon());
    EXPECT_EQ(fake_gpu::calls("cudaStreamCreateWithPriority"), 0);
  });
  EXPECT_EQ(fake_gpu::calls("cudaStreamCreateWithPriority, greatest"), 2) << "NCCL's, and no more";
}

// The fusion memory and the pinned memory grow in few steps, since each step waits for the device.
TEST_F(NcclSessionTest, SizesThatCreepUpTakeFewSteps) {
  Hosts hosts(2);
  on_sessions(2, 2, [&](Session& session, int rank) {
    const auto backends = make_nccl_backends(session, hosts[rank]);
    ASSERT_EQ(backends.size(), 2U);
    const DeviceGuard guard(rank);
    CudaMemory memory;
    for (const auto& backend : backends) {
      BackendChecks checks{*backend, memory, Device{Device::Kind::cuda, rank}, rank, 2};
      for (std::int64_t count = 1'000; count < 150'000; count += 12'500) {
        EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::sum, {count, count}, true), 0);
      }
    }
  });
  EXPECT_EQ(fake_gpu::calls("ncclMemAlloc"), 2 * 2);  // 1 and 2 MiB
  EXPECT_EQ(fake_gpu::calls("ncclCommRegister"), 2 * 2);
  EXPECT_EQ(fake_gpu::calls("cudaHostAlloc"), 2 * 2);
}

TEST_F(NcclSessionTest, OnlyALackOfMemoryIsSaidToBeOne) {
  fake_gpu::reset(1);
  const DeviceGuard guard(0);
  const auto failure_of = [](std::size_t size) {
    return error_of([&] { static_cast<void>(nccl_allocate(size)); });
  };
  EXPECT_EQ(failure_of(std::size_t{1} << 50).code(), Errc::resource);
  fake_gpu::break_device(0);
  const Error error = failure_of(8);
  EXPECT_EQ(error.code(), Errc::internal);
  EXPECT_THAT(error.what(), testing::HasSubstr("cudaErrorIllegalAddress"));
}

// In the default stream CUDA does not answer while a graph is captured on another one.
TEST_F(NcclSessionTest, AFailedDeviceIsNoCapture) {
  fake_gpu::reset(1);
  const CudaStream stream;
  EXPECT_FALSE(is_capturing(stream.get()));
  EXPECT_FALSE(is_capturing(nullptr));
  fake_gpu::capture(stream.get(), true);
  EXPECT_TRUE(is_capturing(stream.get()));
  EXPECT_TRUE(is_capturing(nullptr));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  fake_gpu::capture(stream.get(), false);
  fake_gpu::break_device(0);
  EXPECT_FALSE(is_capturing(stream.get()));
  EXPECT_FALSE(is_capturing(nullptr));
}

TEST(GrownSize, IsAtLeastWhatIsAskedForAndAtMostAQuarterMore) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  EXPECT_EQ(grown_size(0), kMiB);
  EXPECT_EQ(grown_size(1), kMiB);
  EXPECT_EQ(grown_size(kMiB), kMiB);
  EXPECT_EQ(grown_size(kMiB + 1), 2 * kMiB);
  EXPECT_EQ(grown_size(16 * kMiB), 16 * kMiB);
  EXPECT_EQ(grown_size(16 * kMiB + 64), 20 * kMiB);
  EXPECT_EQ(grown_size(kMiB << 10U), kMiB << 10U);
  for (std::size_t size = kMiB; size < kMiB << 20U; size += size / 100 + 12'345) {
    const std::size_t room = grown_size(size);
    EXPECT_GE(room, size);
    EXPECT_LE(room - size, std::max(kMiB, size / 4));
    EXPECT_EQ(grown_size(room), room);
    EXPECT_GE(grown_size(room + 1), room + room / 7);
  }
}

}  // namespace
}  // namespace hvd::test
