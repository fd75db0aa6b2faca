// How the ranks of a session agree on GPUs and on NCCL, on the fake runtime.
#include <atomic>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include <hvd/core/session.hpp>
#include <hvd/ops/backends.hpp>

#include "cuda_memory.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "nccl/device_guard.hpp"
#include "nccl/gpu_choice.hpp"

namespace hvd::test {
namespace {

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
};

TEST_F(NcclSessionTest, EveryRankTakesTheDeviceOfItsLocalRank) {
  on_sessions(3, 4, [](Session& session, int rank) { EXPECT_EQ(choose_gpu(session), rank); });
}

TEST_F(NcclSessionTest, NoBackendWithoutAGpu) {
  on_sessions(2, 0, [](Session& session, int) { EXPECT_EQ(make_nccl_backend(session), nullptr); });
}

TEST_F(NcclSessionTest, NoBackendWhereRanksWouldShareAGpu) {
  on_sessions(3, 2, [](Session& session, int) { EXPECT_EQ(make_nccl_backend(session), nullptr); });
}

TEST_F(NcclSessionTest, RanksMeetThroughTheStore) {
  on_sessions(4, 4, [](Session& session, int rank) {
    const auto backend = make_nccl_backend(session);
    ASSERT_NE(backend, nullptr);
    EXPECT_EQ(backend->name(), "nccl");
    const DeviceGuard guard(rank);
    CudaMemory memory;
    BackendChecks checks{*backend, memory, Device{Device::Kind::cuda, rank}, rank, 4};
    EXPECT_EQ(checks.allreduce(DType::f32, ReduceOp::average, {100, 3}, true), 0);
  });
}

}  // namespace
}  // namespace hvd::test
