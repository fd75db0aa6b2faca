// Tests the NCCL backend on a real GPU, where NCCL must behave as the fake does: with one rank, and
// with two where NCCL lets them share it.
#include <cstdlib>
#include <functional>
#include <latch>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>

#include "cuda_memory.hpp"
#include "nccl/cuda.hpp"
#include "nccl/nccl_backend.hpp"
#include "nccl_checks.hpp"
#include "stream_event.hpp"
#include "support/samples.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test

class NcclGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "needs a CUDA device";
    }
    backend_ = std::make_unique<NcclBackend>(GpuRank{0, 1, 0}, hosts_[0], copier());
    memory_ = std::make_unique<CudaMemory>();
  }

  /// Returns the copier of this build.
  static std::unique_ptr<Copier> copier() {
    auto kernel = make_kernel_copier();
    return kernel ? std::move(kernel) : make_plain_copier();
  }

  BackendChecks checks() { return {*backend_, *memory_, Device{Device::Kind::cuda, 0}, 0, 1}; }

  Hosts hosts_{1};
  std::unique_ptr<NcclBackend> backend_;
  std::unique_ptr<CudaMemory> memory_;
};

TEST_F(NcclGpuTest, Reduces) { check_every_reduction(checks()); }
TEST_F(NcclGpuTest, Scales) { check_scales(checks()); }
TEST_F(NcclGpuTest, Converts) { check_conversions(checks()); }
TEST_F(NcclGpuTest, Broadcasts) { check_broadcasts(checks()); }
TEST_F(NcclGpuTest, Gathers) { check_allgathers(checks()); }
TEST_F(NcclGpuTest, ReducesAndScatters) { check_reducescatters(checks()); }
TEST_F(NcclGpuTest, SendsPartsToAll) { check_alltoalls(checks()); }
TEST_F(NcclGpuTest, WorksWithoutInputAndOutput) {
  const std::vector<TensorSlice> nothing{{nullptr, nullptr, 100'000}};
  backend_->allreduce({nothing, checks().device, DType::f32, ReduceOp::min}, soon());
  // The whole output must become infinity, which is the identity element of the minimum.
  std::byte* const output = memory_->put(Bytes(400'000));
  const std::vector<TensorSlice> absent{{nullptr, output, 100'000}};
  backend_->allreduce({absent, checks().device, DType::f32, ReduceOp::min}, soon());
  const std::vector<double> infinite(100'000, std::numeric_limits<double>::infinity());
  EXPECT_EQ(memory_->get(output, 400'000), encode(DType::f32, infinite));
}
TEST_F(NcclGpuTest, HasSubsets) { EXPECT_EQ(checks().subsets({{0}, {0}}), 0); }
TEST_F(NcclGpuTest, RefusesWhatNcclCannotDo) { check_refusals(checks()); }

TEST_F(NcclGpuTest, ScalesIntegers) {
  if (!make_kernel_copier()) GTEST_SKIP() << "needs a build with nvcc";
  check_integer_scales(checks());
}

TEST_F(NcclGpuTest, HundredsOfTensors) {
  std::vector<std::int64_t> counts;
  for (int i = 0; i < 500; ++i) counts.push_back(i % 3 == 0 ? 40'099 + i : 64 + i % 5);
  for (const DType dtype : {DType::f32, DType::bf16, DType::u8}) {
    EXPECT_EQ(checks().allreduce(dtype, ReduceOp::sum, counts, false), 0) << to_string(dtype);
  }
  EXPECT_EQ(checks().allreduce(DType::f16, ReduceOp::average, counts, true, {0.5, 2.5}), 0);
}

TEST_F(NcclGpuTest, TheStreamWaitsForTheInput) {
  constexpr std::int64_t kCount = 1 << 22;
  const CudaStream training;
  const Bytes values = encode(DType::f32, sample(DType::f32, 0, kCount));
  std::byte* const source = memory_->put(values);
  std::byte* const gradient = memory_->put(Bytes(values.size()));
  // These take a millisecond or more, and the copy after them decides the result.
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(cudaMemsetAsync(gradient, i, values.size(), training.get()), cudaSuccess);
  }
  ASSERT_EQ(
      cudaMemcpyAsync(gradient, source, values.size(), cudaMemcpyDeviceToDevice, training.get()),
      cudaSuccess);
  StreamEvent ready(training.get());
  backend_->after(ready, soon());
  const std::vector<TensorSlice> tensors{{gradient, gradient, kCount}, {gradient, nullptr, 1}};
  backend_->allreduce({tensors, checks().device, DType::f32, ReduceOp::sum}, soon());
  EXPECT_EQ(memory_->get(gradient, values.size()), values);
}

// An error that the program has caused and not read yet must not fail our calls.
TEST_F(NcclGpuTest, AnErrorOfTheProgramsIsNotOurs) {
  EXPECT_NE(cudaSetDevice(1'000'000), cudaSuccess);
  EXPECT_EQ(checks().allreduce(DType::f32, ReduceOp::sum, {100, 3}, true), 0);
}

TEST_F(NcclGpuTest, LargeTensors) {
  EXPECT_EQ(checks().allreduce(DType::f32, ReduceOp::sum, {1 << 22}, true), 0);
}

TEST_F(NcclGpuTest, AfterAnAbortEveryCallThrows) {
  backend_->barrier(soon());
  backend_->abort();
  EXPECT_THROW(backend_->barrier(soon()), Error);
}

struct CountsDown {
  std::latch& latch;
  ~CountsDown() { latch.count_down(); }
};

/// Runs ranks as threads on one GPU, which NCCL 2.30 and newer allow if this variable is set.
class NcclTwoRanksTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;

  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "GPU";
    if (std::getenv("NCCL_MULTI_RANK_GPU_ENABLE") == nullptr) GTEST_SKIP() << "NCCL 2.30";
  }

  static void on_ranks(const std::function<void(BackendChecks)>& body) {
    Hosts hosts(kRanks);
    expect_threads(kRanks, [&](int rank) {
      // The ranks pretend to be on two hosts, because threads of one process may not share a GPU.
      NcclBackend backend(GpuRank{rank, kRanks, 0, rank}, hosts[rank], make_kernel_copier());
      CudaMemory memory;
      body({backend, memory, Device{Device::Kind::cuda, 0}, rank, kRanks});
    });
  }

  /// Lets the first rank alone enter a barrier, whose kernel then waits, and returns its error. The
  /// other rank stays, since the kernel reads its memory.
  static Errc alone_in_a_barrier(const std::function<void(Backend&)>& then, Deadline deadline) {
    std::optional<Errc> code;
    std::latch over(1);
    on_ranks([&](BackendChecks checks) {
      checks.backend.barrier(soon());
      if (checks.rank != 0) return over.wait();
      const CountsDown at_the_end{over};
      std::thread other([&] { then(checks.backend); });
      code = error_of([&] { checks.backend.barrier(deadline); }).code();
      other.join();
    });
    return *code;
  }
};

TEST_F(NcclTwoRanksTest, Reduces) { on_ranks(check_every_reduction); }
TEST_F(NcclTwoRanksTest, Scales) { on_ranks(check_scales); }
TEST_F(NcclTwoRanksTest, Converts) { on_ranks(check_conversions); }
TEST_F(NcclTwoRanksTest, Broadcasts) { on_ranks(check_broadcasts); }
TEST_F(NcclTwoRanksTest, Gathers) { on_ranks(check_allgathers); }
TEST_F(NcclTwoRanksTest, ReducesAndScatters) { on_ranks(check_reducescatters); }
TEST_F(NcclTwoRanksTest, SendsPartsToAll) { on_ranks(check_alltoalls); }
TEST_F(NcclTwoRanksTest, WorksWithRanksThatHaveNothing) { on_ranks(check_absent_ranks); }

TEST_F(NcclTwoRanksTest, HasSubsets) {
  on_ranks([](BackendChecks checks) { EXPECT_EQ(checks.subsets({{1}, {0, 1}, {0}}), 0); });
}

TEST_F(NcclTwoRanksTest, AnAbortEndsAKernelThatWaits) {
  EXPECT_EQ(alone_in_a_barrier([](Backend& backend) { backend.abort(); }, soon()), Errc::aborted);
}

TEST_F(NcclTwoRanksTest, ADeadlineEndsAKernelThatWaits) {
  EXPECT_EQ(alone_in_a_barrier([](Backend&) {}, Clock::now() + std::chrono::milliseconds(500)),
            Errc::timeout);
}

}  // namespace
}  // namespace hvd::test
