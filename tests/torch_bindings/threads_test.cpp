// Tests trainers whose ranks are threads of one process and use the default context of their
// thread.
#include <thread>

#include "training.hpp"

namespace hvd::threads_test {
namespace {

using namespace test;  // NOLINT: a test

constexpr int kSteps = 10;
constexpr int kRanks = 3;
constexpr double kTolerance = 1e-9;
const auto kSgd = torch::optim::SGDOptions(0.1).momentum(0.9);

torch::nn::Sequential make_double_net(std::uint64_t seed) {
  auto net = make_net(seed);
  net->to(torch::kFloat64);
  return net;
}

void train(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, int rank, int size) {
  for (int step = 0; step < kSteps; ++step) {
    const Batch part = global_batch(step).of_rank(rank, size);
    optimizer.zero_grad();
    loss_of(net, {part.inputs.to(torch::kFloat64), part.targets.to(torch::kFloat64)}).backward();
    optimizer.step();
  }
}

/// Trains with `train_rank` on each rank, and compares with one process.
void expect_equal_training(const std::function<void(torch::nn::Sequential&)>& train_rank) {
  auto reference = make_double_net(1);
  torch::optim::SGD alone(reference->parameters(), kSgd);
  train(reference, alone, 0, 1);
  Outcomes outcomes(kRanks);
  const auto body = [&](Context& context) {
    auto net = make_double_net(rank() == 0 ? 1 : 7);
    train_rank(net);
    outcomes.set(context.rank(), net);
  };
  threads(kRanks, body, thread_config(0, kRanks));
  auto start = make_double_net(1);
  outcomes.expect(values_of(reference), values_of(start), kTolerance);
}

TEST(RanksAsThreads, TrainAsOneProcessWithDistributedDataParallel) {
  expect_equal_training([](torch::nn::Sequential& net) {
    const DistributedDataParallel parallel(net);
    torch::optim::SGD optimizer(net->parameters(), kSgd);
    train(net, optimizer, rank(), size());
  });
}

// LibTorch's CPU allocator serves the whole process, and each rank has an arena of its own.
TEST(RanksAsThreads, TrainAsOneProcessWithGradientsBornInTheirArenas) {
  expect_equal_training([](torch::nn::Sequential& net) {
    DistributedOptimizer<torch::optim::SGD> optimizer(*net, kSgd);
    train(net, optimizer, rank(), size());
    EXPECT_EQ(optimizer.gradient_counters().copied, 0U);
    for (const auto& parameter : net->parameters()) {
      const torch::Tensor& gradient = parameter.grad();
      EXPECT_TRUE(context().arena()->contains(gradient.data_ptr(), gradient.nbytes()));
    }
  });
}

TEST(RanksAsThreads, ShareTheIntraOpThreadsOfTheirCaller) {
  const int before = torch::get_num_threads();
  torch::set_num_threads(5);
  for (const auto& [ranks, share] : {std::pair(1, 5), std::pair(2, 2), std::pair(6, 1)}) {
    const auto body = [expected = share](Context&) {
      EXPECT_EQ(torch::get_num_threads(), expected);
    };
    threads(ranks, body, thread_config(0, 1));
    EXPECT_EQ(torch::get_num_threads(), 5);
    std::thread([] { EXPECT_EQ(torch::get_num_threads(), 5); }).join();
  }
  const auto body_with_numbers_of_its_own = [](Context&) {
    torch::set_num_threads(rank() + 1);
    barrier();
    EXPECT_EQ(torch::get_num_threads(), rank() + 1);
  };
  threads(3, body_with_numbers_of_its_own, thread_config(0, 1));
  torch::set_num_threads(before);
}

}  // namespace
}  // namespace hvd::threads_test
