// Tests that ranks whose parameters have come to differ are named, and that others never are.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "training.hpp"

namespace hvd::check_replicas_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
using DistributedSGD = DistributedOptimizer<torch::optim::SGD>;

constexpr int kEvery = 4;

void on_checking_ranks(int size, int every, const std::function<void(Context&)>& body) {
  const std::shared_ptr<Store> store = make_hash_store();
  expect_threads(size, [&](int rank) {
    Config config = thread_config(rank, size);
    config.check_replicas_every = every;
    const auto context = make_context(config, store);
    body(*context);
  });
}

void train_step(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, Context& context,
                int step) {
  optimizer.zero_grad();
  loss_of(net, global_batch(step).of_rank(context.rank(), context.size())).backward();
  optimizer.step();
}

/// Flips the highest bit of the significand, so that a step does not round the difference away.
void flip_a_bit(const torch::Tensor& of) {
  static_cast<std::int32_t*>(of.mutable_data_ptr())[0] ^= 1 << 22;
}

class CheckReplicas : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CheckReplicas, testing::Values(2, 3, 4));

// One bit of one rank's averaged gradient is wrong once.
TEST_P(CheckReplicas, ARankWithAFlippedBitIsNamedOnAllRanks) {
  const int size = GetParam();
  for (const int flipped : {0, size - 1}) {
    for (const int step_of_flip : {0, 5, 7}) {
      on_checking_ranks(size, kEvery, [&](Context& context) {
        auto net = make_net(1);
        DistributedSGD optimizer(*net, 0.1, {.context = &context});
        std::string message;
        int step = 0;
        for (; message.empty() && step < step_of_flip + 2 * kEvery; ++step) {
          const auto code = code_of(
              [&] {
                optimizer.zero_grad();
                loss_of(net, global_batch(step).of_rank(context.rank(), size)).backward();
                if (context.rank() == flipped && step == step_of_flip) {
                  flip_a_bit(net->parameters()[2].grad());
                }
                optimizer.step();
              },
              &message);
          EXPECT_EQ(code, message.empty() ? std::nullopt : std::optional(Errc::mismatch));
        }
        EXPECT_LE(step - 1, step_of_flip + kEvery) << "found too late";
        if (size == 2) {
          EXPECT_THAT(message, HasSubstr("rank(s) 0-1 have different parameters"));
        } else {
          EXPECT_THAT(message,
                      HasSubstr(fmt::format("rank(s) {} differ from most ranks", flipped)));
        }
      });
    }
  }
}

TEST_P(CheckReplicas, EqualReplicasAreNeverReported) {
  const int size = GetParam();
  const std::vector<DistributedOptimizerOptions> ways{{},
                                                      {.backward_passes_per_step = 2},
                                                      {.compression = Compression::bf16},
                                                      {.op = ReduceOp::sum, .num_groups = 2},
                                                      {.wait_in_backward = false},
                                                      {.step_in_backward = true},
                                                      {.gradient_predivide_factor = 3.0},
                                                      {.weighted = true}};
  for (const int every : {1, 3}) {
    on_checking_ranks(size, every, [&](Context& context) {
      for (DistributedOptimizerOptions options : ways) {
        options.context = &context;
        auto net = make_net(1);
        DistributedSGD optimizer(*net, torch::optim::SGDOptions(0.01).momentum(0.9), options);
        for (int step = 0; step < 10; ++step) {
          if (options.weighted) optimizer.set_weight(1 + context.rank());
          train_step(net, optimizer, context, step);
        }
      }
      auto net = make_net(2);
      DistributedDataParallel parallel(*net, {.context = &context});
      torch::optim::Adam adam(net->parameters(), 0.01);
      for (int step = 0; step < 10; ++step) train_step(net, adam, context, step);
    });
  }
}

// A rank that has joined has missed reductions. The others go on, and later all are compared again.
TEST_P(CheckReplicas, ComparisonsGoOnAfterAJoin) {
  const int size = GetParam();
  on_checking_ranks(size, kEvery, [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(*net, 0.1, {.context = &context});
    const bool leaves_early = context.rank() == size - 1;
    for (int step = 0; step < (leaves_early ? 3 : 8); ++step) {
      train_step(net, optimizer, context, step);
    }
    context.join();
    broadcast_parameters(*net, 0, context);
    for (int step = 0; step < 6; ++step) train_step(net, optimizer, context, step);
    if (context.rank() == 0) flip_a_bit(net->parameters()[0]);
    const auto code = code_of([&] {
      for (int step = 0; step < 2 * kEvery; ++step) train_step(net, optimizer, context, step);
    });
    EXPECT_EQ(code, Errc::mismatch);
  });
}

TEST_P(CheckReplicas, WithoutTheSettingNothingIsCompared) {
  on_checking_ranks(GetParam(), 0, [](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(*net, 0.1, {.context = &context});
    if (context.rank() == 0) flip_a_bit(net->parameters()[0]);
    for (int step = 0; step < 2 * kEvery; ++step) train_step(net, optimizer, context, step);
  });
}

}  // namespace
}  // namespace hvd::check_replicas_test
