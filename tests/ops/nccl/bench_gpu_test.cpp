// Tests hvd_bench with the memory of GPUs, which are fake.
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include <hvd/core/internal/session.hpp>
#include <hvd/hvd.hpp>
#include <hvd/ops/internal/backends.hpp>
#include <hvd/ops/internal/ready_fence.hpp>

#include "collective.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "gpu.hpp"
#include "measure.hpp"

namespace hvd::bench {
namespace {

namespace fake = test::fake_gpu;

class BenchGpu : public testing::Test {
 protected:
  ~BenchGpu() override { fake::reset(0); }

  void TearDown() override {
    EXPECT_EQ(fake::violations(), std::vector<std::string>());
    EXPECT_EQ(fake::leaks(), std::vector<std::string>());
  }
};

Options on_gpu(OpKind kind) {
  Options options;
  options.kind = kind;
  options.cuda = true;
  options.iterations = 3;
  options.warmup = 1;
  return options;
}

/// Measures on ranks that are threads. Rank r has GPU r % `gpus`.
void expect_right(int ranks, int gpus, const Options& options, std::size_t size) {
  fake::reset(gpus);
  const std::shared_ptr<Store> store = make_hash_store();
  auto transports = make_in_process_transports(ranks);
  test::expect_threads(ranks, [&](int rank) {
    auto session = std::make_unique<Session>(test::thread_config(rank, ranks), store);
    auto host = make_ring_backend(std::move(transports[static_cast<std::size_t>(rank)]));
    auto backends = make_nccl_backends(*session, *host);
    backends.push_back(std::move(host));
    auto fence = make_host_fence(*session);
    Context context(std::move(session), std::move(backends), std::move(fence));
    const Row row = measure(context, options, extent_of(options, size, ranks));
    EXPECT_EQ(row.wrong, 0);
    EXPECT_EQ(row.iterations, 3);
    EXPECT_GT(row.min_us, 0);
    context.shutdown();
  });
}

TEST_F(BenchGpu, AllreduceAndBroadcastAreRight) {
  for (const std::size_t size : {std::size_t{4}, std::size_t{1'000}, std::size_t{2} << 20}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average}) {
      Options options = on_gpu(OpKind::allreduce);
      options.op = op;
      expect_right(1, 1, options, size);
      expect_right(3, 3, options, size);
    }
    Options options = on_gpu(OpKind::broadcast);
    options.root = 2;
    options.dtype = DType::bf16;
    expect_right(3, 3, options, size);
  }
  EXPECT_GT(fake::collectives_run(), 0);
}

TEST_F(BenchGpu, EachRankUsesItsOwnGpuOnly) {
  expect_right(2, 3, on_gpu(OpKind::allreduce), 100);
  EXPECT_EQ(fake::contexts(), (std::set<int>{0, 1}));
}

TEST_F(BenchGpu, RanksMayShareAGpu) {
  expect_right(3, 2, on_gpu(OpKind::allreduce), 1'000);
  EXPECT_EQ(fake::collectives_run(), 0);
}

TEST_F(BenchGpu, WithoutAGpuItSaysSo) {
  fake::reset(0);
  EXPECT_THROW(static_cast<void>(gpu_of(0)), std::runtime_error);
}

}  // namespace
}  // namespace hvd::bench
