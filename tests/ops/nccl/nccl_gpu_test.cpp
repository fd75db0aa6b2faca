// The NCCL backend on a real GPU, one rank: what of the fake's promises NCCL keeps.
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_memory.hpp"
#include "nccl/device_guard.hpp"
#include "nccl/nccl_backend.hpp"
#include "nccl_checks.hpp"

namespace hvd::test {
namespace {

class NcclGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "needs a CUDA device";
    }
    ncclUniqueId id{};
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    backend_ = std::make_unique<NcclBackend>(NcclPlace{0, 1, 0}, id,
                                             Clock::now() + std::chrono::seconds(60));
    memory_ = std::make_unique<CudaMemory>();
  }

  BackendChecks checks() { return {*backend_, *memory_, Device{Device::Kind::cuda, 0}, 0, 1}; }

  std::unique_ptr<NcclBackend> backend_;
  std::unique_ptr<CudaMemory> memory_;
};

TEST_F(NcclGpuTest, Reduces) { check_every_reduction(checks()); }
TEST_F(NcclGpuTest, Scales) { check_scales(checks()); }
TEST_F(NcclGpuTest, Broadcasts) { check_broadcasts(checks()); }
TEST_F(NcclGpuTest, Gathers) { check_allgathers(checks()); }
TEST_F(NcclGpuTest, ReducesAndScatters) { check_reducescatters(checks()); }
TEST_F(NcclGpuTest, SendsPartsToAll) { check_alltoalls(checks()); }
TEST_F(NcclGpuTest, WorksWithoutInputAndOutput) {
  const std::vector<TensorSlice> nothing{{nullptr, nullptr, 100'000}};
  backend_->allreduce({nothing, checks().device, DType::f32, ReduceOp::min}, soon());
  // Infinity, from the host, over the whole tensor.
  std::byte* const output = memory_->put(Bytes(400'000));
  const std::vector<TensorSlice> absent{{nullptr, output, 100'000}};
  backend_->allreduce({absent, checks().device, DType::f32, ReduceOp::min}, soon());
  const std::vector<double> infinite(100'000, std::numeric_limits<double>::infinity());
  EXPECT_EQ(memory_->get(output, 400'000), encode(DType::f32, infinite));
}
TEST_F(NcclGpuTest, HasSubsets) { EXPECT_EQ(checks().subsets({{0}, {0}}), 0); }
TEST_F(NcclGpuTest, RefusesWhatNcclCannotDo) { check_refusals(checks()); }

TEST_F(NcclGpuTest, LargeTensors) {
  EXPECT_EQ(checks().allreduce(DType::f32, ReduceOp::sum, {1 << 22}, true), 0);
}

TEST_F(NcclGpuTest, AfterAnAbortEveryCallThrows) {
  backend_->barrier(soon());
  backend_->abort();
  EXPECT_THROW(backend_->barrier(soon()), Error);
}

}  // namespace
}  // namespace hvd::test
