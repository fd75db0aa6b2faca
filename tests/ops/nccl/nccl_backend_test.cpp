// Tests the NCCL backend's real source on a fake NCCL and CUDA runtime. Ranks are threads with one
// device each.
#include "nccl/nccl_backend.hpp"

#include <atomic>
#include <latch>
#include <memory>
#include <numeric>
#include <string_view>
#include <thread>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include "cuda_memory.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "nccl/cuda.hpp"
#include "nccl/meeting.hpp"
#include "nccl/nccl_comm.hpp"
#include "nccl/nccl_features.hpp"
#include "nccl/pinned_backend.hpp"
#include "nccl_checks.hpp"
#include "reduce/scale.hpp"
#include "stream_event.hpp"
#include "values.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test
using std::chrono::milliseconds;

/// Says whether fused tensors are copied by our kernel, or as in a build without nvcc.
enum class Copies { kernel, plain };

struct Setting {
  int ranks = 1;
  Copies copies = Copies::kernel;
};

std::string name_of(const ::testing::TestParamInfo<Setting>& info) {
  return (info.param.copies == Copies::kernel ? "kernel" : "plain") +
         std::to_string(info.param.ranks);
}

class NcclBackendTest : public ::testing::TestWithParam<Setting> {
 protected:
  NcclBackendTest() { fake_gpu::reset(ranks()); }
  ~NcclBackendTest() override { fake_gpu::reset(0); }

  void TearDown() override {
    EXPECT_EQ(fake_gpu::violations(), std::vector<std::string>());
    EXPECT_EQ(fake_gpu::leaks(), std::vector<std::string>());
  }

  [[nodiscard]] static int ranks() { return GetParam().ranks; }
  [[nodiscard]] static bool has_kernel() { return GetParam().copies == Copies::kernel; }

  /// Runs `body` on one thread per rank, each with a backend and memory on its device.
  static void on_all_ranks(const std::function<void(BackendChecks)>& body) {
    Hosts hosts(ranks());
    expect_threads(ranks(), [&](int rank) {
      NcclBackend backend(GpuRank{rank, ranks(), rank}, hosts[rank],
                          has_kernel() ? make_kernel_copier() : make_plain_copier());
      const DeviceGuard guard(rank);
      CudaMemory memory;
      body({backend, memory, Device{Device::Kind::cuda, rank}, rank, ranks()});
      EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "an error is left behind";
    });
  }
};

/// Returns the code of the error that `call` throws.
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
TEST_P(NcclBackendTest, Converts) {
  if (!has_kernel()) return;
  on_all_ranks(check_conversions);
}
TEST_P(NcclBackendTest, Broadcasts) { on_all_ranks(check_broadcasts); }
TEST_P(NcclBackendTest, Gathers) { on_all_ranks(check_allgathers); }
TEST_P(NcclBackendTest, ReducesAndScatters) { on_all_ranks(check_reducescatters); }
TEST_P(NcclBackendTest, SendsPartsToAll) { on_all_ranks(check_alltoalls); }
TEST_P(NcclBackendTest, WorksWithRanksThatHaveNothing) { on_all_ranks(check_absent_ranks); }
TEST_P(NcclBackendTest, RefusesWhatNcclCannotDo) {
  on_all_ranks([](BackendChecks checks) { check_refusals(checks); });
}
TEST_P(NcclBackendTest, ScalesIntegersWithItsKernelOnly) {
  on_all_ranks([](BackendChecks checks) {
    if (has_kernel()) return check_integer_scales(checks);
    EXPECT_EQ(
        code_of([&] {
          static_cast<void>(checks.allreduce(DType::i32, ReduceOp::sum, {4}, true, {2.0, 1.0}));
        }),
        Errc::unsupported);
  });
}

// NCCL's own average multiplies by 1/n rounded to 16 bits, and a plain sum may overflow.
TEST_P(NcclBackendTest, AnAverageOfEqualSixteenBitFloatsIsTheirValue) {
  on_all_ranks([&](BackendChecks checks) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      ASSERT_EQ(checks.backend.supports(OpKind::allreduce, checks.device, dtype, ReduceOp::average),
                has_kernel());
      if (!has_kernel()) continue;
      std::vector<double> values(31);
      std::iota(values.begin(), values.end(), -15.0);
      values.push_back(49'152);
      const Bytes given = encode(dtype, values);
      const auto count = std::ssize(values);
      const auto put = [&] { return checks.memory.put(given); };
      for (const std::size_t tensors : {1U, 3U}) {
        std::vector<TensorSlice> slices;
        for (std::size_t i = 0; i < tensors; ++i) slices.push_back({put(), put(), count});
        checks.backend.allreduce({slices, checks.device, dtype, ReduceOp::average}, soon());
        for (const TensorSlice& slice : slices) {
          EXPECT_EQ(checks.memory.get(slice.output, given.size()), given)
              << to_string(dtype) << ", " << tensors << " tensors";
        }
      }
      std::vector<std::int64_t> counts(static_cast<std::size_t>(checks.size), 0);
      counts[0] = count;  // the whole result is the first rank's
      std::byte* const output = put();
      const std::vector<ScatterSlice> scattered{{put(), output, counts}};
      checks.backend.reducescatter({scattered, checks.device, dtype, ReduceOp::average}, soon());
      EXPECT_EQ(checks.memory.get(output, given.size()), given) << "scattered";
    }
  });
}

// A factor of 1/3 that is rounded to bf16 is 0.2 % too large, and 1e-8 becomes zero as f16.
TEST_P(NcclBackendTest, SixteenBitFloatsAreScaledToTheBitAsOnTheHost) {
  Hosts hosts(ranks());
  on_all_ranks([&](BackendChecks checks) {
    PinnedBackend pinned({checks.rank, checks.size, checks.rank}, hosts[checks.rank],
                         make_plain_copier());
    for (const DType dtype : {DType::f16, DType::bf16}) {
      // The other ranks add zeros, so that the order of the sum decides nothing.
      std::vector<double> values(31);
      if (checks.rank == 0) std::iota(values.begin(), values.end(), 1.0);
      const Bytes given = encode(dtype, values);
      std::iota(values.begin(), values.end(), 1.0);
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
        const bool by_nccl = checks.backend.supports(OpKind::allreduce, checks.device, dtype, op);
        Backend& chosen = by_nccl ? checks.backend : pinned;
        for (const double factor : {1.0 / 3.0, 1e-8}) {
          Bytes expected = encode(dtype, values);
          scale(dtype, expected.data(), expected.data(), std::ssize(values), factor);
          for (const bool before : {true, false}) {
            std::byte* const data = checks.memory.put(given);
            const std::vector<TensorSlice> slices{{data, data, std::ssize(values)}};
            chosen.allreduce(
                {slices, checks.device, dtype, op, before ? factor : 1.0, before ? 1.0 : factor},
                soon());
            EXPECT_TRUE(checks.memory.get(data, given.size()) == expected)
                << to_string(dtype) << ' ' << to_string(op) << " by " << factor << " by "
                << chosen.name();
          }
        }
      }
    }
  });
}

TEST_P(NcclBackendTest, AnAverageOfFusedTensorsTakesNoPassOfItsOwn) {
  if (!has_kernel()) return;
  on_all_ranks([](BackendChecks checks) {
    EXPECT_EQ(checks.allreduce(DType::bf16, ReduceOp::average, {1000, 7}, true), 0);
  });
  EXPECT_EQ(fake_gpu::calls("launch_copies"), 2 * ranks()) << "a pack and an unpack";
}

TEST_P(NcclBackendTest, AConversionTakesNoPassOfItsOwn) {
  on_all_ranks([](BackendChecks checks) {
    std::byte* const data = checks.memory.put(Bytes(4'000));
    const std::vector<TensorSlice> slices{{data, data, 1'000}};
    AllreduceCall call{slices, checks.device, DType::bf16, ReduceOp::average};
    call.f32_memory = true;
    if (has_kernel()) return checks.backend.allreduce(call, soon());
    EXPECT_EQ(code_of([&] { checks.backend.allreduce(call, soon()); }), Errc::unsupported);
  });
  if (has_kernel()) {
    EXPECT_EQ(fake_gpu::calls("launch_copies"), 2 * ranks()) << "a pack and an unpack";
  }
}

TEST_P(NcclBackendTest, AnAverageOfOneRankTakesNoKernel) {
  on_all_ranks([](BackendChecks checks) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      EXPECT_EQ(checks.allreduce(dtype, ReduceOp::average, {1000, 262'144}, true), 0);
    }
  });
  if (ranks() == 1) {
    EXPECT_EQ(fake_gpu::calls("a kernel for one rank"), 0);
  }
}

TEST_P(NcclBackendTest, FusedTensorsShareOneCollective) {
  on_all_ranks([](BackendChecks checks) {
    EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::sum, {1, 2, 3, 4, 5}, true), 0);
  });
  EXPECT_EQ(fake_gpu::collectives_run(), ranks());
}

TEST_P(NcclBackendTest, HundredsOfTensorsTakeOneLaunchEachWay) {
  if (!has_kernel()) return;
  on_all_ranks([](BackendChecks checks) {
    // As many tensors as ResNet-50 has, most of them small.
    std::vector<std::int64_t> counts;
    for (int i = 0; i < 161; ++i) counts.push_back(i % 3 == 0 ? 4'099 + i : 64 + i % 5);
    EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::average, counts, true, {0.5, 2.5}), 0);
  });
  EXPECT_EQ(fake_gpu::calls("launch_copies"), 2 * ranks()) << "scales included";
  EXPECT_EQ(fake_gpu::calls("cudaMemcpyAsync"), 0);
  EXPECT_EQ(fake_gpu::collectives_run(), ranks());
}

TEST_P(NcclBackendTest, TensorsOfAMiBAreReducedWhereTheyAre) {
  on_all_ranks([](BackendChecks checks) {
    // The last one is small, and the only one that is.
    EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::average, {262'144, 300'000, 7}, true), 0);
    EXPECT_EQ(checks.allreduce(DType::f64, ReduceOp::sum, {131'072, 0, 131'073}, false), 0);
  });
  EXPECT_EQ(fake_gpu::copied_bytes(), 0U);
  EXPECT_EQ(fake_gpu::calls("launch_copies"), 0);
  EXPECT_EQ(fake_gpu::calls("ncclGroupEnd"), 2 * ranks()) << "one launch of NCCL for each call";
  EXPECT_EQ(fake_gpu::collectives_run(), 5 * ranks());
}

TEST_P(NcclBackendTest, OnlyTensorsBelowAMiBArePacked) {
  on_all_ranks([](BackendChecks checks) {
    EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::sum, {60, 262'144, 7, 1}, true), 0);
  });
  EXPECT_EQ(fake_gpu::copied_bytes(), static_cast<std::size_t>(2 * ranks() * (60 + 7 + 1) * 4));
  EXPECT_EQ(fake_gpu::calls("ncclGroupEnd"), ranks()) << "one launch of NCCL for both";
  EXPECT_EQ(fake_gpu::collectives_run(), 2 * ranks());
}

// Scales of packed tensors are in the copies, those of others in NCCL's operation or in place.
TEST_P(NcclBackendTest, LargeTensorsAreScaledAsTheOthersOfTheCallAre) {
  on_all_ranks([](BackendChecks checks) {
    const std::vector<std::int64_t> counts{31, 131'072, 5};
    EXPECT_EQ(checks.allreduce(DType::f64, ReduceOp::sum, counts, false, {0.5, 2.5}), 0);
    EXPECT_EQ(checks.allreduce(DType::f64, ReduceOp::sum, counts, true, {0.3, 1.0}), 0);
    EXPECT_EQ(checks.allreduce(DType::f64, ReduceOp::average, counts, true, {0.5, 2.5}), 0);
    EXPECT_EQ(checks.allreduce(DType::f64, ReduceOp::average, counts, false, {1.0, 0.25}), 0);
    EXPECT_EQ(checks.allreduce(DType::f64, ReduceOp::min, counts, false, {0.3, 1.0}), 0);
    EXPECT_EQ(checks.allreduce(DType::f64, ReduceOp::min, counts, true, {1.0, 0.25}), 0);
    if (!has_kernel()) return;
    EXPECT_EQ(checks.allreduce(DType::i64, ReduceOp::sum, counts, false, {0.5, 2.0}), 0);
  });
}

TEST_P(NcclBackendTest, RanksWithoutALargeTensorTakePart) {
  on_all_ranks([](BackendChecks checks) {
    const std::vector<std::int64_t> counts{131'072, 131'073, 9, 3};
    EXPECT_EQ(checks.allreduce_without_last(DType::f64, ReduceOp::max, counts), 0);
    EXPECT_EQ(checks.allreduce_without_last(DType::f64, ReduceOp::sum, counts, {-0.5, 2.0}), 0);
  });
}

TEST(FusedLayout, PacksWhatIsBelowAMiBUnlessItIsTheOnlyOne) {
  std::byte here{};
  const auto tensor = [&](std::int64_t count, bool absent = false) {
    return TensorSlice{&here, absent ? nullptr : &here, count};
  };
  constexpr std::int64_t kMiB = 1 << 20;
  const std::vector<TensorSlice> mixed{
      tensor(kMiB - 1), tensor(kMiB),           tensor(0),
      tensor(3),        tensor(2 * kMiB, true), tensor(kMiB, true)};
  const FusedLayout layout(mixed, 1);
  std::vector<bool> is_packed;
  for (std::size_t i = 0; i < mixed.size(); ++i) is_packed.push_back(layout[i].is_packed);
  EXPECT_EQ(is_packed, (std::vector<bool>{true, false, false, true, false, false}));
  EXPECT_EQ(layout[3].offset, std::size_t{kMiB}) << "a multiple of 16";
  EXPECT_EQ(layout.packed(), std::size_t{kMiB} + 3);
  EXPECT_EQ(layout[5].offset, std::size_t{2 * kMiB});
  EXPECT_EQ(layout.spare(), std::size_t{3 * kMiB});

  const std::vector<TensorSlice> one{tensor(5), tensor(kMiB), tensor(0)};
  EXPECT_EQ(FusedLayout(one, 1).packed(), 0U);
  EXPECT_EQ(FusedLayout(one, 1).spare(), 0U);
}

TEST_P(NcclBackendTest, AScaledLoneTensorTakesNoPassOfItsOwnBefore) {
  on_all_ranks([](BackendChecks checks) {
    EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::sum, {1000}, false, {0.3, 1.0}), 0);
    EXPECT_EQ(checks.allreduce(DType::bf16, ReduceOp::sum, {1000}, false, {0.5, 1.0}), 0);
  });
  EXPECT_EQ(fake_gpu::calls("launch_copies"), ranks() == 1 ? 2 : 0);  // NCCL may miss elements
  EXPECT_EQ(fake_gpu::collectives_run(), 2 * ranks());
}

TEST_P(NcclBackendTest, TheFusionMemoryIsRegisteredOnce) {
  on_all_ranks([](BackendChecks checks) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::sum, {100, 200}, true), 0);
    }
  });
  EXPECT_EQ(fake_gpu::calls("ncclMemAlloc"), ranks());
  EXPECT_EQ(fake_gpu::calls("ncclCommRegister"), ranks());
  on_all_ranks([](BackendChecks checks) {
    EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::sum, {100, 200}, true), 0);
    EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::sum, {1000, 200}, true), 0) << "it grows";
  });
}

TEST_P(NcclBackendTest, TheStreamWaitsForTheInputAndNoThreadDoes) {
  on_all_ranks([](BackendChecks checks) {
    const CudaStream training;
    const Bytes values = encode(DType::f32, sample(DType::f32, checks.rank, 500));
    std::vector<TensorSlice> tensors;
    for (int i = 0; i < 2; ++i) {
      std::byte* const gradient = checks.memory.put(Bytes(values.size()));
      // The fake runs the copy when something waits for that stream, and never before.
      ASSERT_EQ(cudaMemcpyAsync(gradient, values.data(), values.size(), cudaMemcpyHostToDevice,
                                training.get()),
                cudaSuccess);
      tensors.push_back({gradient, gradient, 500});
    }
    {
      StreamEvent ready(training.get());
      checks.backend.after(ready, soon());
    }  // an event may be destroyed once a stream waits for it
    checks.backend.allreduce({tensors, checks.device, DType::f32, ReduceOp::sum}, soon());
    for (const TensorSlice& tensor : tensors) {
      EXPECT_EQ(count_wrong(DType::f32, checks.memory.get(tensor.output, values.size()),
                            reduced_sample(DType::f32, ReduceOp::sum, checks.size, 500, {})),
                0);
    }
  });
  EXPECT_EQ(fake_gpu::calls("cudaStreamWaitEvent"), ranks());
}

TEST_P(NcclBackendTest, AnEventOfTheHostIsWaitedFor) {
  class HostEvent final : public DeviceEvent {
   public:
    void wait(Deadline) override { waited = true; }
    bool waited = false;
  };
  on_all_ranks([](BackendChecks checks) {
    HostEvent event;
    checks.backend.after(event, soon());
    EXPECT_TRUE(event.waited);
  });
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

TEST_P(NcclBackendTest, EqualPartsAreGatheredByOneCollective) {
  on_all_ranks([](BackendChecks checks) {
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(checks.size), 3);
    const std::byte mine{static_cast<unsigned char>(checks.rank + 1)};
    std::byte* const output = checks.memory.put(Bytes(static_cast<std::size_t>(checks.size) * 12));
    const std::vector<GatherSlice> slices{{checks.memory.put(Bytes(12, mine)), output, counts}};
    checks.backend.allgather({slices, checks.device, DType::f32}, soon());
    Bytes expected;
    for (int rank = 1; rank <= checks.size; ++rank) {
      expected.insert(expected.end(), 12, std::byte{static_cast<unsigned char>(rank)});
    }
    EXPECT_EQ(checks.memory.get(output, expected.size()), expected);
  });
  EXPECT_EQ(fake_gpu::collectives_run(), ranks());
}

TEST_P(NcclBackendTest, CallsMayComeFromDifferentThreads) {
  on_all_ranks([](BackendChecks checks) {
    for (int i = 0; i < 3; ++i) {
      // The current device of a new thread is the first one, whichever the rank has.
      std::thread([&] { checks.backend.barrier(soon()); }).join();
      std::thread([&] {
        const std::vector<TensorSlice> absent{{nullptr, nullptr, 9}};
        checks.backend.allreduce({absent, checks.device}, soon());
      }).join();
    }
  });
}

TEST_P(NcclBackendTest, AnotherThreadMayCaptureAGraphMeanwhile) {
  std::latch begins(ranks());
  std::latch ends(ranks());
  on_all_ranks([&](BackendChecks checks) {
    const std::vector<TensorSlice> absent{{nullptr, nullptr, 9}, {nullptr, nullptr, 5}};
    begins.arrive_and_wait();
    fake_gpu::capture_elsewhere(true);
    // The guard of this thread does not count for a new one.
    std::thread([&] { checks.backend.allreduce({absent, checks.device}, soon()); }).join();
    ends.arrive_and_wait();
    fake_gpu::capture_elsewhere(false);
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

/// Aborts when some rank has called `function` of the fake.
void abort_after(std::string_view function, Backend& backend) {
  const Deadline end = soon();
  while (fake_gpu::calls(function) == 0 && Clock::now() < end) std::this_thread::yield();
  backend.abort();
}

TEST_P(NcclBackendTest, MakingACommunicatorMayTakeLongerThanACollective) {
  on_all_ranks([](BackendChecks checks) {
    std::vector<int> all(static_cast<std::size_t>(checks.size));
    std::iota(all.begin(), all.end(), 0);
    checks.backend.barrier(Clock::now());
    checks.backend.subset(all, soon())->barrier(Clock::now());
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

TEST_P(NcclBackendTest, ASubsetWaitsForItsMembersUntilAnAbort) {
  if (ranks() == 1) return;
  on_all_ranks([](BackendChecks checks) {
    if (checks.rank != 0) return;
    const auto pair = checks.backend.subset(std::vector<int>{0, 1}, soon());
    std::thread aborter([&] { checks.backend.abort(); });
    EXPECT_EQ(code_of([&] { pair->barrier(soon()); }), Errc::aborted);
    aborter.join();
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
    checks.backend.barrier(soon());  // the first call may take longer, since it starts NCCL
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

TEST_P(NcclBackendTest, ACommunicatorThatIsLostLeavesNoGroupOpen) {
  if (ranks() == 1) return;
  on_all_ranks([](BackendChecks checks) {
    fake_gpu::fail(checks.rank, ncclRemoteError);
    EXPECT_EQ(code_of([&] { static_cast<void>(checks.alltoall(DType::f32, 5)); }), Errc::peer_lost);
  });
  // A thread that left a group open would launch none of its later calls. `leaks` looks for groups.
}

INSTANTIATE_TEST_SUITE_P(Kernel, NcclBackendTest,
                         ::testing::Values(Setting{1}, Setting{2}, Setting{3}, Setting{4}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Plain, NcclBackendTest, ::testing::Values(Setting{3, Copies::plain}),
                         name_of);

class NcclStartTest : public ::testing::Test {
 protected:
  ~NcclStartTest() override { fake_gpu::reset(0); }
};

TEST_F(NcclStartTest, ARankThatDoesNotComeIsATimeout) {
  fake_gpu::reset(2);
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const std::atomic<bool> aborted{false};
  Watch watch(Clock::now() + milliseconds(50), aborted, "init", "NCCL");
  EXPECT_EQ(code_of([&] { NcclComm(id, 2, 0, watch); }), Errc::timeout);
  EXPECT_EQ(fake_gpu::violations(), std::vector<std::string>());
  EXPECT_EQ(fake_gpu::leaks(), std::vector<std::string>());
}

// The other rank is lost after the two have met.
TEST_F(NcclStartTest, AnAbortEndsTheStart) {
  fake_gpu::reset(2);
  Hosts hosts(2);
  expect_threads(2, [&](int rank) {
    const GpuRank self{rank, 2, rank};
    if (rank == 1) return static_cast<void>(meet(hosts[1], self, 1, soon()));
    NcclBackend backend(self, hosts[0], make_kernel_copier());
    std::thread aborter([&] { abort_after("ncclCommInitRankConfig", backend); });
    EXPECT_EQ(code_of([&] { backend.barrier(soon()); }), Errc::aborted);
    aborter.join();
  });
  EXPECT_EQ(fake_gpu::violations(), std::vector<std::string>());
  EXPECT_EQ(fake_gpu::leaks(), std::vector<std::string>());
}

TEST_F(NcclStartTest, ContextsAreMadeOnTheRanksOwnDeviceOnly) {
  fake_gpu::reset(3);
  Hosts hosts(1);
  std::thread([&] {  // its current device is the first one, which must stay unused
    NcclBackend backend({0, 1, 2}, hosts[0], make_kernel_copier());
    backend.barrier(soon());
    const std::vector<TensorSlice> absent{{nullptr, nullptr, 9}};
    backend.allow_async();
    backend.allreduce({absent, Device{Device::Kind::cuda, 2}}, soon());
    const auto call = backend.take_async();
    std::thread([&] {
      while (!call->try_complete()) std::this_thread::yield();
    }).join();
    backend.subset(std::vector<int>{0}, soon())->barrier(soon());
    backend.abort();
    EXPECT_EQ(code_of([&] { backend.barrier(soon()); }), Errc::aborted);
  })
      .join();
  EXPECT_EQ(fake_gpu::contexts(), std::set<int>{2});
  EXPECT_EQ(fake_gpu::violations(), std::vector<std::string>());
  EXPECT_EQ(fake_gpu::leaks(), std::vector<std::string>());
}

TEST_F(NcclStartTest, DifferentCallsAreAnError) {
  fake_gpu::reset(2);
  Hosts hosts(2);
  expect_threads(2, [&](int rank) {
    NcclBackend backend({rank, 2, rank}, hosts[rank], make_kernel_copier());
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

TEST_F(NcclStartTest, AnAllocationBehindACollectiveIsAnError) {
  fake_gpu::reset(1);
  Hosts hosts(1);
  NcclBackend backend({0, 1, 0}, hosts[0], make_kernel_copier());
  backend.barrier(soon());
  fake_gpu::hang(0);
  backend.allow_async();
  backend.barrier(soon());
  const auto call = backend.take_async();
  {
    const DeviceGuard guard(0);
    nccl_free(nccl_allocate(8));
  }
  backend.abort();
  EXPECT_EQ(code_of([&] {
              while (!call->try_complete()) std::this_thread::yield();
            }),
            Errc::aborted);
  EXPECT_EQ(fake_gpu::violations(),
            std::vector<std::string>{"ncclMemAlloc behind a kernel that may wait for a lost rank"});
}

}  // namespace
}  // namespace hvd::test
