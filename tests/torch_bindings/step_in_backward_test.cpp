// Tests optimizers that step inside the backward pass.
#include <thread>

#include <gmock/gmock.h>

#include "kinds.hpp"
#include "training.hpp"

namespace hvd::step_in_backward_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
using DistributedSGD = DistributedOptimizer<torch::optim::SGD>;

const auto kSgd = torch::optim::SGDOptions(0.1).momentum(0.9);
constexpr int kSteps = 8;

class StepInBackward : public testing::TestWithParam<int> {
 protected:
  static DistributedOptimizerOptions options(Context& context) {
    return {.step_in_backward = true, .context = &context};
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, StepInBackward, testing::Values(1, 2, 3));

TEST_P(StepInBackward, EveryKindEqualsOneProcess) {
  const int size = GetParam();
  for (const Kind& kind : kinds()) {
    auto reference = make_net(1);
    const auto start = values_of(reference);
    const auto alone = kind.make(reference->parameters());
    const auto train = [](torch::nn::Sequential& net, Optimizer& optimizer, int rank, int ranks) {
      torch::optim::StepLR scheduler(optimizer, 3, 0.5);
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        loss_of(net, global_batch(step).of_rank(rank, ranks)).backward();
        optimizer.step();
        scheduler.step();
      }
    };
    train(reference, *alone, 0, 1);
    for (const bool wrap : {false, true}) {
      Outcomes outcomes(size);
      on_ranks(size, [&](Context& context) {
        auto net = make_net(1);
        const auto own = kind.make(net->parameters());
        std::unique_ptr<Optimizer> optimizer;
        if (wrap) {
          optimizer = std::make_unique<DistributedOptimizer<>>(*own, *net, options(context));
        } else {
          optimizer = kind.derive(*net, options(context));
        }
        train(net, *optimizer, context.rank(), size);
        EXPECT_EQ(context.stats().step.count, kSteps - 1) << "it counts from the first step()";
        for (const auto& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
        outcomes.set(context.rank(), net);
      });
      outcomes.expect(values_of(reference), start);
    }
  }
}

/// Copies its input. The backward pass waits there until the rank has completed `done` operations,
/// and one more, because an operation is counted shortly before it is done.
struct WaitInBackward : torch::autograd::Function<WaitInBackward> {
  static torch::Tensor forward(torch::autograd::AutogradContext* saved, const torch::Tensor& input,
                               std::int64_t context, std::int64_t done) {
    saved->saved_data["context"] = context;
    saved->saved_data["done"] = done;
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 const torch::autograd::variable_list& gradients) {
    auto& context = *reinterpret_cast<Context*>(saved->saved_data["context"].toInt());
    const auto done = static_cast<std::uint64_t>(saved->saved_data["done"].toInt());
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    while (context.stats().completed < done && Clock::now() < deadline) std::this_thread::yield();
    const TensorWork next =
        allreduce_async(torch::ones({1}, torch::kInt64), {.name = "next", .context = &context});
    EXPECT_TRUE(next.wait_until(deadline));
    return {gradients[0], torch::Tensor(), torch::Tensor()};
  }
};

TEST_P(StepInBackward, AGradientIsFreedWhileThePassGoesOn) {
  on_ranks(GetParam(), [](Context& context) {
    const auto rate = torch::optim::SGDOptions(1);
    for (const bool wrap : {false, true}) {
      std::vector<torch::Tensor> parameters;
      std::vector<NamedTensors::Item> items;
      for (const char* name : {"first", "second", "third"}) {
        parameters.push_back(torch::ones({4}).requires_grad_());
        items.emplace_back(name, parameters.back());
      }
      const NamedTensors named(items);
      torch::optim::SGD own(parameters, rate);
      std::unique_ptr<Optimizer> optimizer;
      if (wrap) {
        optimizer = std::make_unique<DistributedOptimizer<>>(own, named, options(context));
      } else {
        optimizer = std::make_unique<DistributedSGD>(named, rate, options(context));
      }
      // This hook is called after that of the second parameter, which steps what is reduced.
      bool freed = false;
      parameters[0].register_hook(
          [&](const torch::Tensor&) { freed = !parameters[2].grad().defined(); });
      for (int step = 0; step < 3; ++step) {
        freed = false;
        // The first gradient is that of the third parameter. The pass waits after it.
        const torch::Tensor waiting = WaitInBackward::apply(
            parameters[0].clone() + parameters[1], reinterpret_cast<std::int64_t>(&context),
            static_cast<std::int64_t>(context.stats().completed) + 1);
        ((waiting + parameters[2]).sum() * (context.rank() + 1)).backward();
        EXPECT_TRUE(freed);
        optimizer->step();
        const double wanted = 1 - (step + 1) * (context.size() + 1) / 2.0;
        for (const torch::Tensor& each : parameters) {
          EXPECT_FALSE(each.grad().defined());
          EXPECT_LT((each.detach() - wanted).abs().max().item<double>(), 1e-5) << "step " << step;
        }
      }
    }
  });
}

TEST_P(StepInBackward, RanksMayUseDifferentParameters) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(*net, torch::optim::SGDOptions(1).weight_decay(0.5), options(context));
    const auto parameters = net->parameters();
    const torch::Tensor unused = parameters[3].detach().clone();
    for (int step = 0; step < 3; ++step) {
      const torch::Tensor before = parameters[0].detach().clone();
      // Another rank uses the parameter in each step, and rank 0 uses none in the second.
      const auto mine = static_cast<std::size_t>(context.rank() == step % size ? 0 : 1);
      if (size == 1 || step != 1 || context.rank() != 0) parameters[mine].sum().backward();
      optimizer.step();
      const torch::Tensor wanted = before * 0.5 - 1.0 / size;
      EXPECT_LT((parameters[0].detach() - wanted).abs().max().item<double>(), 1e-6);
    }
    EXPECT_TRUE(torch::equal(parameters[3].detach(), unused)) << "nobody used it";
    EXPECT_TRUE(verify(*net, context));
  });
}

TEST_P(StepInBackward, WhatItExcludesIsRefused) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    std::string message;
    const auto refuses = [&](const std::function<void()>& call, const char* what) {
      EXPECT_EQ(code_of(call, &message), Errc::invalid_argument);
      EXPECT_THAT(message, HasSubstr(what));
    };
    const auto refuses_options = [&](DistributedOptimizerOptions bad) {
      bad.step_in_backward = true;
      bad.context = &context;
      refuses([&] { DistributedSGD optimizer(*net, kSgd, bad); }, "step_in_backward excludes");
    };
    refuses_options({.backward_passes_per_step = 2});
    refuses_options({.adasum = true});
    refuses_options({.wait_in_backward = false});
    refuses([&] { DistributedDataParallel parallel(net, options(context)); },
            "step_in_backward needs DistributedOptimizer");
    refuses(
        [&] {
          DistributedOptimizer<torch::optim::LBFGS> lbfgs(*net, torch::optim::LBFGSOptions(1),
                                                          options(context));
        },
        "not LBFGS");

    DistributedSGD optimizer(*net, kSgd, options(context));
    const auto pass = [&] { loss_of(net, global_batch(0)).backward(); };
    refuses(
        [&] {
          optimizer.step([&] {
            pass();
            return torch::ones({});
          });
        },
        "step() with a closure cannot be used with step_in_backward");
    pass();
    refuses(pass, "call step() after each");
    EXPECT_EQ(code_of([&] { optimizer.step(); }), Errc::invalid_argument);
    GradScaler scaler;
    refuses([&] { scaler.step(optimizer); }, "GradScaler cannot be used with step_in_backward");
    pass();
    optimizer.step();
    {
      const auto pause = optimizer.no_sync();
      pass();
    }
    pass();
    optimizer.step();
    EXPECT_TRUE(verify(*net, context));
  });
}

}  // namespace
}  // namespace hvd::step_in_backward_test
