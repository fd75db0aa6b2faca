// Tests GradScaler, WarmupLR, and verify of an optimizer.
#include <limits>
#include <stdexcept>
#include <utility>

#include <gmock/gmock.h>

#include "kinds.hpp"
#include "training.hpp"

namespace hvd {
namespace {

using namespace test;  // NOLINT: a test
using testing::DoubleNear;
using testing::HasSubstr;
using DistributedSGD = DistributedOptimizer<torch::optim::SGD>;

const auto kSgd = torch::optim::SGDOptions(0.1).momentum(0.9);

class TrainingAids : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TrainingAids, testing::Values(1, 2, 3, 4));

TEST_P(TrainingAids, AScaledLossTrainsAlike) {
  const int size = GetParam();
  auto reference = make_net(1);
  torch::optim::SGD sgd(reference->parameters(), kSgd);
  for (int step = 0; step < 6; ++step) {
    sgd.zero_grad();
    loss_of(reference, global_batch(step)).backward();
    torch::nn::utils::clip_grad_norm_(reference->parameters(), 0.5);
    sgd.step();
  }
  Outcomes outcomes(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context});
    GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      scaler.scale(loss_of(net, global_batch(step).of_rank(context.rank(), size))).backward();
      scaler.unscale_(optimizer);
      torch::nn::utils::clip_grad_norm_(net->parameters(), 0.5);
      EXPECT_TRUE(scaler.step(optimizer));
      scaler.update();
    }
    EXPECT_EQ(scaler.scale_factor(), 8192);
    outcomes.set(context.rank(), net);
  });
  auto start = make_net(1);
  outcomes.expect(values_of(reference), values_of(start));
}

TEST_P(TrainingAids, AnInfiniteGradientOnOneRankIsSkippedByAll) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    torch::optim::SGD sgd(net->parameters(), kSgd);
    DistributedOptimizer optimizer(sgd, net->named_parameters(),
                                   DistributedOptimizerOptions{.context = &context});
    GradScaler scaler({.init_scale = 64});
    const auto before = values_of(net);
    const bool last = context.rank() + 1 == context.size();
    const double factor = last ? std::numeric_limits<double>::infinity() : 1;
    scaler.scale(loss_of(net, global_batch(0)) * factor).backward();
    EXPECT_FALSE(scaler.step(optimizer));
    scaler.update();
    EXPECT_EQ(scaler.scale_factor(), 32);
    EXPECT_EQ(largest_difference(values_of(net), before), 0);

    optimizer.zero_grad();
    scaler.scale(loss_of(net, global_batch(0))).backward();
    EXPECT_TRUE(scaler.step(optimizer));
    scaler.update();
    EXPECT_GT(largest_difference(values_of(net), before), 1e-3);
    EXPECT_TRUE(verify(*net, context));
  });
}

/// Steps once with a scaled loss, and expects the step of an optimizer without a scaler.
template <class Optimizer>
void expect_right_step(torch::nn::Sequential& net, Optimizer& optimizer, GradScaler& scaler,
                       const Batch& mine, const Batch& global) {
  auto reference = make_net(1);
  {
    const torch::NoGradGuard no_grad;
    const auto values = values_of(net);
    for (std::size_t i = 0; i < values.size(); ++i) reference->parameters()[i].copy_(values[i]);
  }
  torch::optim::SGD sgd(reference->parameters(), torch::optim::SGDOptions(0.1));
  loss_of(reference, global).backward();
  sgd.step();
  optimizer.zero_grad();
  scaler.scale(loss_of(net, mine)).backward();
  EXPECT_TRUE(scaler.step(optimizer));
  scaler.update();
  EXPECT_LT(largest_difference(values_of(net), values_of(reference)), 1e-5);
}

// Rank 0 alone notices its mistake; the others step.
TEST_P(TrainingAids, TheStepAfterAFailedReductionIsRight) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), torch::optim::SGDOptions(0.1),
                             {.wait_in_backward = false, .context = &context});
    GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
    for (int step = 0; step < 4; ++step) {
      const Batch global = global_batch(step);
      const Batch mine = global.of_rank(context.rank(), size);
      if (step % 2 == 1) {
        expect_right_step(net, optimizer, scaler, mine, global);
        continue;
      }
      optimizer.zero_grad();
      scaler.scale(loss_of(net, mine)).backward();
      if (context.rank() == 0) {
        torch::Tensor& gradient = net->parameters()[0].mutable_grad();
        gradient = torch::zeros_like(gradient);
        EXPECT_EQ(code_of([&] { (void)scaler.step(optimizer); }), Errc::invalid_argument);
      } else {
        EXPECT_TRUE(scaler.step(optimizer));
        scaler.update();
      }
      broadcast_parameters(net, size - 1, context);
      const torch::Tensor state =
          broadcast(torch::tensor({scaler.scale_factor(), static_cast<double>(scaler.good_steps())},
                                  torch::kFloat64),
                    size - 1, {.context = &context});
      scaler.load(state[0].item<double>(), state[1].item<std::int64_t>());
    }
    EXPECT_TRUE(verify(*net, context));
    EXPECT_EQ(scaler.scale_factor(), size == 1 ? 2048 : 4096);
  });
}

/// Throws in its first step.
struct Throwing : torch::optim::SGD {
  using SGD::SGD;
  torch::Tensor step(LossClosure closure = nullptr) override {
    if (!std::exchange(has_thrown, true)) throw std::runtime_error("the first step");
    return SGD::step(std::move(closure));
  }
  bool has_thrown = false;
};

TEST(GradScaler, TheStepAfterOneThatThrewIsRight) {
  auto net = make_net(1);
  Throwing sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  GradScaler scaler({.init_scale = 1024});
  scaler.scale(loss_of(net, global_batch(0))).backward();
  EXPECT_THROW((void)scaler.step(sgd), std::runtime_error);
  expect_right_step(net, sgd, scaler, global_batch(1), global_batch(1));
}

// LibTorch lists a parameter that two modules share twice.
TEST(GradScaler, AParameterWithTwoNamesIsUnscaledOnce) {
  const auto gradients = [](double scale) {
    const torch::nn::Linear shared(kFeatures, kFeatures);
    const torch::NoGradGuard no_grad;
    shared->weight.copy_(normal({kFeatures, kFeatures}, 1));
    shared->bias.copy_(normal({kFeatures}, 2));
    torch::nn::Sequential net(shared, torch::nn::Tanh(), shared);
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
    EXPECT_EQ(sgd.param_groups().front().params().size(), 4U);
    GradScaler scaler({.init_scale = scale});
    const torch::AutoGradMode with_grad(true);
    scaler.scale(net->forward(global_batch(0).inputs).square().mean()).backward();
    scaler.unscale_(sgd);
    return std::vector<torch::Tensor>{shared->weight.grad(), shared->bias.grad()};
  };
  const auto wanted = gradients(1);
  EXPECT_GT(wanted[0].abs().max().item<double>(), 1e-3);
  EXPECT_LT(largest_difference(gradients(1024), wanted), 1e-6);
}

// An error between the two calls, as of a collective, ends the step.
TEST(GradScaler, AStepThatIsLeftAfterUnscalingIsOver) {
  auto net = make_net(1);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  GradScaler scaler({.init_scale = 1024});
  scaler.scale(loss_of(net, global_batch(0))).backward();
  scaler.unscale_(sgd);
  EXPECT_EQ(code_of([&] { scaler.unscale_(sgd); }), Errc::invalid_argument);
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_EQ(code_of([&] { scaler.step(sgd); }), Errc::invalid_argument);
  expect_right_step(net, sgd, scaler, global_batch(1), global_batch(1));
}

TEST(GradScaler, MisuseIsNamed) {
  EXPECT_EQ(code_of([] { GradScaler bad({.init_scale = 0}); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([] { GradScaler bad({.growth_factor = 1}); }), Errc::invalid_argument);
  EXPECT_EQ(code_of([] { GradScaler bad({.backoff_factor = 1}); }), Errc::invalid_argument);
  GradScaler scaler;
  EXPECT_EQ(code_of([&] { scaler.update(); }), Errc::invalid_argument);
  scaler.load(256, 5);
  EXPECT_EQ(scaler.scale_factor(), 256);
  EXPECT_EQ(scaler.good_steps(), 5);
}

TEST(WarmupLR, GrowsInAStraightLineAndThenLeavesTheRateAlone) {
  auto net = make_net(1);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.8));
  WarmupLR warmup(sgd, 4, 0.25);
  std::vector<double> rates;
  const auto rate = [&] { return sgd.param_groups().front().options().get_lr(); };
  for (int step = 0; step < 6; ++step) {
    rates.push_back(rate());
    warmup.step();
  }
  const std::vector<double> wanted{0.2, 0.35, 0.5, 0.65, 0.8, 0.8};
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(rates[i], wanted[i], 1e-12) << i;
  EXPECT_TRUE(warmup.done());
  sgd.param_groups().front().options().set_lr(0.1);
  warmup.step();
  EXPECT_EQ(rate(), 0.1);
  EXPECT_EQ(code_of([&] { WarmupLR bad(sgd, 4, 1.5); }), Errc::invalid_argument);
}

TEST_P(TrainingAids, VerifyNamesWhatDiffersInAnOptimizer) {
  const int size = GetParam();
  for (const Kind& kind : kinds()) {
    on_ranks(size, [&](Context& context) {
      auto net = make_net(1);
      const auto optimizer = kind.make(net->parameters());
      EXPECT_TRUE(verify(*optimizer, context)) << kind.name;
      loss_of(net, global_batch(0)).backward();
      optimizer->step();
      EXPECT_TRUE(verify(*optimizer, context)) << kind.name;
      if (size == 1) return;
      if (context.rank() == 1) {
        net->parameters()[2].mutable_grad() *= 2;
        optimizer->step();
      }
      const Verification seen = verify(*optimizer, context);
      EXPECT_FALSE(seen) << kind.name;
      EXPECT_THAT(seen.first_difference,
                  HasSubstr("state of parameter 0 of group 0: rank 1 differs from rank 0"));
      optimizer->param_groups().front().options().set_lr(context.rank() == 1 ? 0.5 : 0.25);
      EXPECT_THAT(verify(*optimizer, context).first_difference, HasSubstr("options of group 0"));
    });
  }
}

TEST_P(TrainingAids, VerifyTakesLbfgsAndWrappedOptimizers) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(2));
    const auto fit = [&](double factor) {
      lbfgs.step([&] {
        lbfgs.zero_grad();
        torch::Tensor loss = loss_of(net, global_batch(0)) * factor;
        loss.backward();
        return loss;
      });
    };
    fit(1);
    EXPECT_TRUE(verify(lbfgs, context));
    fit(context.rank() == 1 ? 2 : 1);
    EXPECT_EQ(verify(lbfgs, context).identical, size == 1);

    auto other = make_net(1);
    torch::optim::SGD sgd(other->parameters(), kSgd);
    DistributedOptimizer optimizer(sgd, other->named_parameters(),
                                   DistributedOptimizerOptions{.context = &context});
    loss_of(other, global_batch(context.rank())).backward();
    optimizer.step();
    EXPECT_TRUE(verify(optimizer, context));
    sgd.param_groups().front().options().set_lr(0.1 * (context.rank() + 1));
    EXPECT_EQ(verify(optimizer, context).identical, size == 1);
    broadcast_optimizer_state(optimizer, 0, context);
    EXPECT_TRUE(verify(optimizer, context));
  });
}

}  // namespace
}  // namespace hvd
