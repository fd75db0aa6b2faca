// Tests tensors on a real GPU. Ranks may share it, which takes the way through pinned memory. The
// program needs no CUDA headers: a LibTorch for CPUs of the same version can compile it.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>

#include <hvd/torch.hpp>

namespace hvd::test {
namespace {

constexpr int kSteps = 50;
constexpr std::array kTypes{torch::kUInt8,    torch::kInt8,         torch::kInt16,
                            torch::kInt32,    torch::kInt64,        torch::kFloat16,
                            torch::kBFloat16, torch::kFloat32,      torch::kFloat64,
                            torch::kBool,     torch::kComplexFloat, torch::kComplexDouble};
constexpr std::array kOps{ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max,
                          ReduceOp::product};

torch::Device gpu() {
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(
                            local_rank() % static_cast<int>(torch::cuda::device_count()))};
}

/// The job, for all tests. With HVD_TEST_NO_SHUTDOWN the process ends without a shutdown.
class JobOfThisProcess final : public testing::Environment {
 public:
  void SetUp() override {
    if (torch::cuda::is_available()) init();
  }
  void TearDown() override {
    if (is_initialized() && std::getenv("HVD_TEST_NO_SHUTDOWN") == nullptr) shutdown();
  }
};
const testing::Environment* const kJob =
    testing::AddGlobalTestEnvironment(new JobOfThisProcess());  // NOLINT: GoogleTest owns it

class TorchCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "GPU";
  }
};

torch::Tensor values(torch::ScalarType type, std::int64_t count) {
  torch::manual_seed(7 + rank());
  const torch::Tensor numbers = torch::randn({count}, torch::kFloat64);
  if (torch::isFloatingType(type)) return numbers.to(type);
  if (torch::isComplexType(type)) return torch::complex(numbers, -numbers).to(type);
  return type == torch::kBool ? numbers > 0 : (numbers * 5).round().clamp(0, 9).to(type);
}

void expect_same(const torch::Tensor& on_gpu, const torch::Tensor& on_cpu,
                 const std::string& what) {
  EXPECT_TRUE(torch::equal(on_gpu.cpu(), on_cpu)) << what << " on rank " << rank();
}

TEST_F(TorchCuda, EveryTypeAndOperationHasTheBitsOfTheCpu) {
  for (const torch::ScalarType type : kTypes) {
    const torch::Tensor mine = values(type, 24 * size());
    const torch::Tensor there = mine.to(gpu());
    const std::string name = c10::toString(type);
    for (const ReduceOp op : kOps) {
      if (type == torch::kBool && op == ReduceOp::average) continue;
      if (torch::isComplexType(type) && op != ReduceOp::sum && op != ReduceOp::average) continue;
      const std::string what = name + " " + std::string(to_string(op));
      expect_same(allreduce(there, {.op = op}), allreduce(mine, {.op = op}), "allreduce " + what);
      expect_same(reducescatter(there, {.op = op}), reducescatter(mine, {.op = op}),
                  "reducescatter " + what);
    }
    expect_same(allgather(there), allgather(mine), "allgather " + name);
    expect_same(broadcast(there, size() - 1), broadcast(mine, size() - 1), "broadcast " + name);
    expect_same(alltoall(there).output, alltoall(mine).output, "alltoall " + name);
  }
}

torch::nn::Sequential network() {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(64, 256), torch::nn::Tanh(),
                            torch::nn::Linear(256, 256), torch::nn::Tanh(),
                            torch::nn::Linear(256, 8));
  net->to(gpu());
  return net;
}

/// Takes the same steps on all ranks, so that the average of the gradients is each of them. `step`
/// follows each backward pass, and `delay` multiplies large matrices before it.
template <class Step>
std::vector<torch::Tensor> train(torch::nn::Sequential& net, bool delay, const Step& step) {
  torch::manual_seed(5);
  const torch::Tensor large = torch::randn({2048, 2048}, torch::TensorOptions(gpu()));
  for (int i = 0; i < kSteps; ++i) {
    net->zero_grad();
    const torch::Tensor input = torch::randn({32, 64}).to(gpu());
    torch::Tensor loss = net->forward(input).square().mean();
    if (delay) {
      torch::Tensor slow = large;
      for (int k = 0; k < 8; ++k) slow = slow.mm(large).tanh();
      loss = loss + 0 * slow.sum();
    }
    loss.backward();
    step();
  }
  std::vector<torch::Tensor> parameters;
  for (const torch::Tensor& parameter : net->parameters()) {
    parameters.push_back(parameter.detach().cpu());
  }
  return parameters;
}

/// Trains on the current stream with and without hvd.
void expect_steps_of_plain_sgd(bool delay) {
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  torch::nn::Sequential plain = network();
  torch::optim::SGD sgd(plain->parameters(), options);
  const auto expected = train(plain, delay, [&] { sgd.step(); });

  torch::nn::Sequential net = network();
  torch::optim::SGD base(net->parameters(), options);
  DistributedOptimizer<> distributed(base, net->named_parameters());
  const auto trained = train(net, delay, [&] { distributed.step(); });
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::equal(trained[i], expected[i])) << "parameter " << i;
  }
}

TEST_F(TorchCuda, FiftyStepsAreThoseOfPlainSgd) { expect_steps_of_plain_sgd(false); }

TEST_F(TorchCuda, FiftyStepsWithLateGradientsAreThoseOfPlainSgd) {
  expect_steps_of_plain_sgd(true);
}

TEST_F(TorchCuda, FiftyStepsOnAnotherStreamAreThoseOfPlainSgd) {
  const c10::impl::VirtualGuardImpl device(torch::kCUDA);
  const c10::StreamGuard guard(device.getStreamFromGlobalPool(gpu()));
  expect_steps_of_plain_sgd(true);
}

TEST_F(TorchCuda, StatisticsAreThoseOfAllRanks) {
  constexpr std::int64_t kChannels = 8;
  const torch::nn::BatchNormOptions options(kChannels);
  torch::nn::BatchNorm1d whole(options);
  SyncBatchNorm norm(options);
  norm->to(gpu());
  for (int step = 0; step < kSteps; ++step) {
    torch::manual_seed(step);
    const torch::Tensor batch = torch::randn({16L * size(), kChannels}).requires_grad_();
    const torch::Tensor own = batch.detach().chunk(size())[rank()].to(gpu()).requires_grad_();
    const torch::Tensor wanted = whole(batch);
    const torch::Tensor result = norm(own);
    wanted.pow(3).sum().backward();
    result.pow(3).sum().backward();
    EXPECT_TRUE(
        torch::allclose(result.detach().cpu(), wanted.detach().chunk(size())[rank()], 1e-3, 1e-3));
    EXPECT_TRUE(torch::allclose(own.grad().cpu(), batch.grad().chunk(size())[rank()], 1e-3, 1e-3));
  }
  EXPECT_TRUE(torch::allclose(norm->running_var.cpu(), whole->running_var, 1e-3, 1e-3));
}

TEST_F(TorchCuda, RanksThatHaveJoinedTakePart) {
  for (int step = 0; step <= rank(); ++step) {
    const torch::Tensor sum = allreduce(torch::ones({10}, torch::TensorOptions(gpu())),
                                        {.name = "joined", .op = ReduceOp::sum});
    EXPECT_EQ(sum.sum().item<double>(), 10.0 * (size() - step));
  }
  EXPECT_EQ(join(), size() - 1);
}

TEST_F(TorchCuda, ProcessSets) {
  for (int first = 0; first < size(); ++first) {
    std::vector<int> ranks;
    for (int each = first; each < size(); ++each) ranks.push_back(each);
    const ProcessSet set = add_process_set(ranks);
    if (rank() >= first) {
      const torch::Tensor sum = allreduce(torch::ones({10}, torch::TensorOptions(gpu())),
                                          {.op = ReduceOp::sum, .process_set = set.id});
      EXPECT_EQ(sum.sum().item<double>(), 10.0 * (size() - first));
    }
    remove_process_set(set);
  }
}

/// These end the job, so each runs in a process of its own (scripts/gpu_proof).
class TorchCudaEnd : public TorchCuda {
 protected:
  void SetUp() override {
    TorchCuda::SetUp();
    if (std::getenv("HVD_TEST_END_OF_JOB") == nullptr) GTEST_SKIP() << "HVD_TEST_END_OF_JOB";
  }
};

// To be run with HVD_COLLECTIVE_TIMEOUT_S=5. The process then ends while its stream is still busy.
TEST_F(TorchCudaEnd, AStreamThatIsBusyForTooLongIsATimeout) {
  torch::Tensor large = torch::randn({8192, 8192}, torch::TensorOptions(gpu()));
  static_cast<void>(allreduce(torch::ones({10}, torch::TensorOptions(gpu()))));
  static_cast<void>(large.mm(large));  // the first product takes much longer
  torch::cuda::synchronize();
  const auto began = Clock::now();
  static_cast<void>(large.mm(large));
  torch::cuda::synchronize();
  const double each = std::chrono::duration<double>(Clock::now() - began).count();
  const int count = std::min(1000, static_cast<int>(12 / each));
  for (int i = 0; i < count; ++i) large = large.mm(large).tanh();
  const Error error = error_of([&] { static_cast<void>(allreduce(large)); });
  EXPECT_EQ(error.code(), Errc::timeout);
}

// To be run with two ranks, of which the last one is killed.
TEST_F(TorchCudaEnd, SurvivorsOfAKilledRankAreTold) {
  torch::nn::Sequential net = network();
  torch::optim::SGD base(net->parameters(), 0.1);
  DistributedOptimizer<> distributed(base, net->named_parameters());
  std::optional<Error> error;
  auto last = Clock::now();
  const Deadline deadline = last + std::chrono::seconds(60);
  for (int step = 0; !error && Clock::now() < deadline; ++step) {
    if (step == kSteps && rank() == size() - 1) static_cast<void>(std::raise(SIGKILL));
    try {
      net->zero_grad();
      net->forward(torch::randn({32, 64}).to(gpu())).square().mean().backward();
      distributed.step();
      last = Clock::now();
    } catch (const Error& thrown) {
      error = thrown;
    }
  }
  ASSERT_TRUE(error);
  EXPECT_EQ(error->fault().rank, size() - 1);
  std::printf("told after %.3f s\n", std::chrono::duration<double>(Clock::now() - last).count());
}

}  // namespace
}  // namespace hvd::test
