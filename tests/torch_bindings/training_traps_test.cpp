// Tests common mistakes and special cases of trainers: several models, graphs used twice, errors in
// between.
#include <array>
#include <optional>
#include <stdexcept>
#include <utility>

#include <gmock/gmock.h>

#include "own_compressor.hpp"
#include "sharded_kinds.hpp"

namespace hvd::training_traps_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
namespace optim = torch::optim;
using DistributedSGD = DistributedOptimizer<optim::SGD>;

const auto kSgd = optim::SGDOptions(0.1).momentum(0.9);
constexpr int kSteps = 6;

class Traps : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Traps, testing::Values(1, 2, 3, 4));

/// Two models that learn in turn. The second one's loss passes through the first.
struct Gan {
  torch::nn::Sequential discriminator = make_net(1);
  torch::nn::Sequential generator = make_net(2);

  [[nodiscard]] torch::Tensor made_of(const torch::Tensor& noise) {
    return torch::cat({generator->forward(noise), noise.narrow(1, kClasses, kFeatures - kClasses)},
                      1);
  }
  [[nodiscard]] torch::Tensor judges(const Batch& real) {
    const torch::Tensor made = made_of(real.inputs).detach();
    return torch::mse_loss(discriminator->forward(real.inputs), real.targets) +
           discriminator->forward(made).square().mean();
  }
  [[nodiscard]] torch::Tensor cheats(const Batch& real) {
    return torch::mse_loss(discriminator->forward(made_of(real.inputs)), real.targets);
  }
};

TEST_P(Traps, AGanWhoseDiscriminatorPassesGradientsOn) {
  const int size = GetParam();
  Gan reference;
  {
    optim::SGD judge(reference.discriminator->parameters(), kSgd);
    optim::SGD cheat(reference.generator->parameters(), kSgd);
    for (int step = 0; step < kSteps; ++step) {
      judge.zero_grad();
      reference.judges(global_batch(step)).backward();
      judge.step();
      cheat.zero_grad();
      reference.cheats(global_batch(step)).backward();
      cheat.step();
    }
  }
  Gan start;
  // With the guard, gradients that only pass through are not sent; without it the result is the
  // same.
  for (const bool guarded : {true, false}) {
    Outcomes judges(size);
    Outcomes cheats(size);
    on_ranks(size, [&](Context& context) {
      Gan gan;
      DistributedSGD judge(gan.discriminator->named_parameters(), kSgd, {.context = &context});
      DistributedSGD cheat(gan.generator->named_parameters(), kSgd, {.context = &context});
      for (int step = 0; step < kSteps; ++step) {
        const Batch mine = global_batch(step).of_rank(context.rank(), size);
        judge.zero_grad();
        gan.judges(mine).backward();
        judge.step();
        cheat.zero_grad();
        if (guarded) {
          const auto pause = judge.no_sync();
          gan.cheats(mine).backward();
        } else {
          gan.cheats(mine).backward();
        }
        cheat.step();
      }
      judges.set(context.rank(), gan.discriminator);
      cheats.set(context.rank(), gan.generator);
    });
    judges.expect(values_of(reference.discriminator), values_of(start.discriminator));
    cheats.expect(values_of(reference.generator), values_of(start.generator));
  }
}

/// Ranks 2r and 2r + 1 hold the two layers of replica r; replicas train on parts of the batch.
TEST(Trap, ModelParallelBesideDataParallel) {
  const auto layers = [] {
    return std::array{torch::nn::Sequential(torch::nn::Linear(kFeatures, 8), torch::nn::Tanh()),
                      torch::nn::Sequential(torch::nn::Linear(8, kClasses))};
  };
  const auto fill = [](torch::nn::Sequential& net, std::uint64_t seed) {
    const torch::NoGradGuard no_grad;
    for (auto& each : net->parameters()) each.copy_(normal(each.sizes(), ++seed, 0.5));
  };
  auto [first, second] = layers();
  fill(first, 1);
  fill(second, 2);
  const auto start = values_of(first);
  optim::SGD sgd(std::vector<optim::OptimizerParamGroup>{first->parameters(), second->parameters()},
                 kSgd);
  for (int step = 0; step < kSteps; ++step) {
    const Batch batch = global_batch(step);
    sgd.zero_grad();
    torch::mse_loss(second->forward(first->forward(batch.inputs)), batch.targets).backward();
    sgd.step();
  }
  const std::array wanted{values_of(first), values_of(second)};
  ASSERT_GT(largest_difference(wanted[0], start), 1e-2);

  for (const int replicas : {1, 2, 3}) {
    on_ranks(2 * replicas, [&](Context& context) {
      const int stage = context.rank() % 2;
      const int replica = context.rank() / 2;
      ProcessSet of_replica;
      ProcessSet of_stage;
      for (int each = 0; each < replicas; ++each) {
        const ProcessSet set = context.add_process_set({2 * each, 2 * each + 1});
        if (each == replica) of_replica = set;
      }
      for (int each = 0; each < 2; ++each) {
        std::vector<int> ranks;
        for (int other = 0; other < replicas; ++other) ranks.push_back(2 * other + each);
        const ProcessSet set = context.add_process_set(ranks);
        if (each == stage) of_stage = set;
      }
      auto nets = layers();
      auto& mine = nets[static_cast<std::size_t>(stage)];
      // Rank 0 or 1 of the set has the right values.
      fill(mine, static_cast<std::uint64_t>(replica == 0 ? 1 + stage : 70 + replica));
      DistributedSGD optimizer(mine->named_parameters(), kSgd,
                               {.process_set = of_stage.id, .context = &context});
      for (int step = 0; step < kSteps; ++step) {
        const Batch batch = global_batch(step).of_rank(replica, replicas);
        optimizer.zero_grad();
        const torch::Tensor hidden =
            stage == 0 ? mine->forward(batch.inputs)
                       : torch::zeros({batch.inputs.size(0), 8}, torch::requires_grad());
        const torch::Tensor received =
            broadcast(hidden, 2 * replica,
                      {.name = "activations", .process_set = of_replica.id, .context = &context});
        // This is the gradient of the sum of all ranks' losses; the first stage has no loss of its
        // own.
        const torch::Tensor loss = stage == 0
                                       ? received.mul(0).sum()
                                       : torch::mse_loss(mine->forward(received), batch.targets);
        loss.backward();
        optimizer.step();
      }
      EXPECT_LT(largest_difference(values_of(mine), wanted[static_cast<std::size_t>(stage)]), 1e-5)
          << "stage " << stage << " of " << replicas << " replicas";
    });
  }
}

// A WGAN with gradient penalty computes gradients of gradients without a backward pass.
TEST_P(Traps, AGradientPenaltyTrainsAsOneProcessDoes) {
  const int size = GetParam();
  const auto loss = [](torch::nn::Sequential& net, const Batch& batch) {
    const torch::Tensor inputs = batch.inputs.detach().clone().requires_grad_();
    const torch::Tensor slope =
        torch::autograd::grad({net->forward(inputs).sum()}, {inputs}, {}, /*retain_graph=*/true,
                              /*create_graph=*/true)[0];
    return loss_of(net, batch) + slope.square().sum(1).mean();
  };
  const auto train = [&](torch::nn::Sequential& net, optim::Optimizer& optimizer, int rank,
                         int ranks) {
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      loss(net, global_batch(step).of_rank(rank, ranks)).backward();
      optimizer.step();
    }
  };
  auto reference = make_net(1);
  optim::SGD sgd(reference->parameters(), optim::SGDOptions(0.05));
  train(reference, sgd, 0, 1);
  auto start = make_net(1);
  Outcomes outcomes(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), optim::SGDOptions(0.05),
                             {.context = &context});
    train(net, optimizer, context.rank(), size);
    outcomes.set(context.rank(), net);
  });
  outcomes.expect(values_of(reference), values_of(start));
}

TEST_P(Traps, OneGraphIsWalkedTwice) {
  const int size = GetParam();
  auto reference = make_net(1);
  optim::SGD sgd(reference->parameters(), kSgd);
  for (int step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    const torch::Tensor loss = loss_of(reference, global_batch(step));
    loss.backward({}, true);
    loss.backward();
    sgd.step();
  }
  auto start = make_net(1);
  for (const bool by_option : {true, false}) {
    Outcomes outcomes(size);
    on_ranks(size, [&](Context& context) {
      auto net = make_net(1);
      DistributedSGD optimizer(
          net->named_parameters(), kSgd,
          {.backward_passes_per_step = by_option ? 2 : 1, .context = &context});
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad(step % 2 == 0);
        const torch::Tensor loss = loss_of(net, global_batch(step).of_rank(context.rank(), size));
        if (by_option) {
          loss.backward({}, true);
        } else {
          const auto pause = optimizer.no_sync();
          loss.backward({}, true);
        }
        loss.backward();
        optimizer.step();
      }
      outcomes.set(context.rank(), net);
    });
    outcomes.expect(values_of(reference), values_of(start));
  }
}

TEST_P(Traps, WhatRanksUseChangesFromStepToStep) {
  const int size = GetParam();
  const auto used = [](int rank, int step) { return static_cast<std::size_t>(rank + step) % 4; };
  const auto loss = [](torch::nn::Sequential& net, std::size_t parameter) {
    return net->parameters()[parameter].square().sum();
  };
  auto reference = make_net(1);
  optim::SGD sgd(reference->parameters(), optim::SGDOptions(0.05));
  for (int step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    for (int rank = 0; rank < size; ++rank) (loss(reference, used(rank, step)) / size).backward();
    sgd.step();
  }
  auto start = make_net(1);
  Outcomes outcomes(size);
  Outcomes sharded(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    auto other = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), optim::SGDOptions(0.05),
                             {.context = &context});
    ShardedOptimizer<optim::SGD> shards(other->named_parameters(), optim::SGDOptions(0.05),
                                        {.bucket_bytes = 150, .context = &context});
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad(step % 2 == 0);
      loss(net, used(context.rank(), step)).backward();
      loss(other, used(context.rank(), step)).backward();
      optimizer.step();
      shards.step();
    }
    outcomes.set(context.rank(), net);
    sharded.set(context.rank(), other);
  });
  outcomes.expect(values_of(reference), values_of(start));
  sharded.expect(values_of(reference), values_of(start));
}

/// One weight encodes and decodes, so it has two names and gets two gradients in one backward pass.
struct Tied {
  torch::Tensor weight = normal({8, kFeatures}, 1, 0.5).requires_grad_();
  torch::Tensor bias = normal({8}, 2, 0.5).requires_grad_();

  [[nodiscard]] NamedTensors named() const {
    return {{"encoder.weight", weight}, {"bias", bias}, {"decoder.weight", weight}};
  }
  [[nodiscard]] torch::Tensor loss(const Batch& batch) const {
    const torch::Tensor hidden = torch::tanh(torch::linear(batch.inputs, weight, bias));
    return torch::mse_loss(torch::linear(hidden, weight.t()), batch.inputs);
  }
};

TEST_P(Traps, TiedWeightsTrainAsOne) {
  const int size = GetParam();
  Tied reference;
  const torch::Tensor start = reference.weight.detach().clone();
  optim::SGD sgd({reference.weight, reference.bias}, kSgd);
  for (int step = 0; step < kSteps; ++step) {
    sgd.zero_grad();
    reference.loss(global_batch(step)).backward();
    sgd.step();
  }
  ASSERT_GT((reference.weight - start).abs().max().item<double>(), 1e-2);
  on_ranks(size, [&](Context& context) {
    const auto train = [&](const auto& construct, int passes, const char* what) {
      Tied tied;
      const auto optimizer = construct(tied.named());
      for (int step = 0; step < kSteps; ++step) {
        optimizer->zero_grad(step % 2 == 0);
        for (int pass = 0; pass < passes; ++pass) {
          tied.loss(global_batch(step).of_rank(context.rank(), size)).backward();
        }
        optimizer->step();
      }
      EXPECT_LT((tied.weight - reference.weight).abs().max().item<double>(), 1e-5) << what;
      EXPECT_TRUE(verify(tied.named(), context)) << what;
    };
    const std::vector<DistributedOptimizerOptions> ways{
        {},
        {.num_groups = 2},
        {.memory = GradientMemory::copied_shared},
        {.backward_passes_per_step = 2, .average_accumulated = true}};
    for (DistributedOptimizerOptions options : ways) {
      options.context = &context;
      train(
          [&](const NamedTensors& named) {
            return std::make_unique<DistributedSGD>(named, kSgd, options);
          },
          options.backward_passes_per_step, "distributed");
    }
    train(
        [&](const NamedTensors& named) {
          return std::make_unique<ShardedOptimizer<optim::SGD>>(
              named, kSgd, ShardedOptimizerOptions{.bucket_bytes = 150, .context = &context});
        },
        1, "sharded");
  });
}

TEST_P(Traps, FrozenMidwayTrainsAsOneProcessDoes) {
  const int size = GetParam();
  const auto freeze = [](torch::nn::Sequential& net, int step) {
    net->parameters()[0].set_requires_grad(step < 2 || step >= 4);
    net->parameters()[3].set_requires_grad(step != 3);
  };
  const auto expect = [&](const optim::SGDOptions& rate, const auto& construct, int passes) {
    auto reference = make_net(1);
    optim::SGD sgd(reference->parameters(), rate);
    for (int step = 0; step < kSteps; ++step) {
      freeze(reference, step);
      sgd.zero_grad();
      loss_of(reference, global_batch(step)).backward();
      sgd.step();
    }
    Outcomes outcomes(size);
    on_ranks(size, [&](Context& context) {
      auto net = make_net(1);
      const auto optimizer = construct(context, net->named_parameters());
      for (int step = 0; step < kSteps; ++step) {
        freeze(net, step);
        optimizer->zero_grad();
        for (int pass = 0; pass < passes; ++pass) {
          loss_of(net, global_batch(step).of_rank(context.rank(), size)).backward();
        }
        optimizer->step();
      }
      outcomes.set(context.rank(), net);
    });
    auto start = make_net(1);
    outcomes.expect(values_of(reference), values_of(start));
  };
  const std::vector<DistributedOptimizerOptions> ways{
      {}, {.backward_passes_per_step = 2, .average_accumulated = true}, {.num_groups = 1}};
  for (const DistributedOptimizerOptions& way : ways) {
    expect(
        kSgd,
        [&](Context& context, const NamedTensors& named) {
          DistributedOptimizerOptions options = way;
          options.context = &context;
          return std::make_unique<DistributedSGD>(named, kSgd, options);
        },
        way.backward_passes_per_step);
  }
  // A sharded optimizer updates its state of a frozen parameter; plain SGD has none.
  const auto plain = optim::SGDOptions(0.1);
  expect(
      plain,
      [&](Context& context, const NamedTensors& named) {
        return std::make_unique<ShardedOptimizer<optim::SGD>>(
            named, plain, ShardedOptimizerOptions{.bucket_bytes = 150, .context = &context});
      },
      1);
}

// A loader that is not sharded gives all ranks the same data, and so the same gradients.
TEST_P(Traps, TheSameDataOnAllRanksIsWarnedOfOnce) {
  const int size = GetParam();
  const auto warnings = [&](bool sharded, bool last_has_none) {
    testing::internal::CaptureStderr();
    on_ranks(size, [&](Context& context) {
      auto net = make_net(1);
      // Ranks look for the layout of its gradients in every step.
      net->register_parameter("unused", torch::ones({2}));
      DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context});
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        Batch batch = global_batch(step);
        if (sharded) batch = batch.of_rank(context.rank(), size);
        if (!last_has_none || context.rank() < size - 1) loss_of(net, batch).backward();
        optimizer.step();
      }
    });
    const std::string text = testing::internal::GetCapturedStderr();
    const std::string wanted = "same gradients in the first step";
    if (text.find(wanted) != std::string::npos) {
      EXPECT_THAT(text, HasSubstr("DistributedOptimizer: all ranks had the same"));
      EXPECT_THAT(text, HasSubstr("as of hvd::DistributedSampler"));
      EXPECT_THAT(text, HasSubstr("torch::manual_seed(seed + hvd::rank())"));
    }
    int found = 0;
    for (auto at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(warnings(false, false), size > 1 ? 1 : 0);
  EXPECT_EQ(warnings(true, false), 0);
  EXPECT_EQ(warnings(false, true), 0);
}

TEST_P(Traps, TheWarningOfTheSameDataNamesWhatTheProgramHasMade) {
  testing::internal::CaptureStderr();
  on_ranks(GetParam(), [&](Context& context) {
    auto net = make_net(1);
    const DistributedDataParallel parallel(net, {.context = &context});
    for (int step = 0; step < 2; ++step) loss_of(net, global_batch(step)).backward();
  });
  const std::string text = testing::internal::GetCapturedStderr();
  const std::string warning = "DistributedDataParallel: all ranks had the same gradients";
  EXPECT_EQ(text.find(warning) != std::string::npos, GetParam() > 1) << text;
}

/// The identity function, whose backward pass throws.
struct Throw : torch::autograd::Function<Throw> {
  static torch::Tensor forward(torch::autograd::AutogradContext* /*saved*/,
                               const torch::Tensor& input) {
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*saved*/,
                                                 const torch::autograd::variable_list&) {
    throw std::runtime_error("in the middle of the backward pass");
  }
};

TEST_P(Traps, AnExceptionOutOfTheBackwardPass) {
  on_ranks(GetParam(), [](Context& context) {
    torch::nn::Linear first(kFeatures, 8);
    torch::nn::Linear second(8, kClasses);
    const NamedTensors named{{"first.weight", first->weight},
                             {"first.bias", first->bias},
                             {"second.weight", second->weight},
                             {"second.bias", second->bias}};
    DistributedSGD optimizer(named, kSgd, {.num_groups = 2, .context = &context});
    const auto backward = [&](bool fails) {
      torch::Tensor hidden = first(global_batch(context.rank()).inputs);
      if (fails) hidden = Throw::apply(hidden);
      second(hidden).square().mean().backward();
    };
    const torch::Tensor before = first->weight.detach().clone();
    for (const bool everybody : {true, false}) {
      const bool fails = everybody || context.rank() == 0;
      if (fails) {
        EXPECT_THROW(backward(true), std::runtime_error);
      } else {
        backward(false);
      }
      // Gradients that the others wait for are sent, and all ranks skip the step.
      optimizer.synchronize();
      optimizer.zero_grad();
    }
    EXPECT_TRUE(torch::equal(first->weight, before));
    backward(false);
    optimizer.step();
    EXPECT_FALSE(torch::equal(first->weight, before));
    EXPECT_TRUE(verify(named, context));
  });
}

// The last rank, or all others, have no rows in the pass after one that has failed.
TEST_P(Traps, AfterAFailedPassARankWithoutRowsTakesPartInStep) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    int pass = 0;
    const auto fails = [&pass] { return pass == 1 || pass == 3; };
    torch::nn::Linear layer(kFeatures, 8);
    DistributedSGD optimizer(*layer, kSgd,
                             {.compressor = std::make_shared<Faulty>(fails), .context = &context});
    for (; pass < 6; ++pass) {
      const bool is_last = context.rank() == size - 1;
      const bool has_rows = size == 1 || pass < 2 || pass > 4 || is_last == (pass != 2);
      const auto train = [&] {
        optimizer.zero_grad();
        if (has_rows) layer(global_batch(context.rank()).inputs).square().mean().backward();
        optimizer.synchronize();
        optimizer.step();
      };
      EXPECT_EQ(code_of(train), fails() ? std::optional(Errc::internal) : std::nullopt);
      EXPECT_TRUE(verify(*layer, context));
    }
  });
}

TEST_P(Traps, AfterAFailedPassGradientsOfTheProgramsOwnAreReduced) {
  on_ranks(GetParam(), [](Context& context) {
    bool fails = true;
    torch::nn::Linear layer(kFeatures, 8);
    DistributedSGD optimizer(
        *layer, kSgd,
        {.compressor = std::make_shared<Faulty>([&fails] { return fails; }), .context = &context});
    EXPECT_EQ(code_of([&] { layer->weight.sum().backward(); }), Errc::internal);
    fails = false;
    optimizer.zero_grad();
    layer->weight.mutable_grad() = torch::full_like(layer->weight, context.rank() + 1.0);
    optimizer.step();
    EXPECT_TRUE(verify(*layer, context));
  });
}

TEST_P(Traps, AnOptimizerThatEndsWithWorkInFlight) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    const std::vector<DistributedOptimizerOptions> ways{
        {}, {.compression = Compression::bf16}, {.compressor = top_k(0.5, 0)}, {.num_groups = 2}};
    for (DistributedOptimizerOptions options : ways) {
      options.wait_in_backward = false;
      options.context = &context;
      net->zero_grad();  // what is in flight keeps its memory
      DistributedSGD optimizer(net->named_parameters(), kSgd, options);
      loss_of(net, global_batch(context.rank())).backward();
    }
    {
      net->zero_grad();
      ShardedOptimizer<optim::Adam> sharded(net->named_parameters(), optim::AdamOptions(0.01),
                                            {.bucket_bytes = 150, .context = &context});
      loss_of(net, global_batch(context.rank())).backward();
    }
    net->zero_grad();
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context});
    loss_of(net, global_batch(context.rank())).backward();
    optimizer.step();
    EXPECT_TRUE(verify(*net, context));
  });
}

TEST_P(Traps, ASecondOptimizerOfTheSameParametersIsNamed) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    std::optional<DistributedSGD> optimizer;
    optimizer.emplace(net->named_parameters(), kSgd,
                      DistributedOptimizerOptions{.context = &context});
    const auto before = context.stats().submitted;
    std::string message;
    EXPECT_EQ(code_of(
                  [&] {
                    DistributedOptimizer twice(*optimizer, net->named_parameters(),
                                               DistributedOptimizerOptions{.context = &context});
                  },
                  &message),
              Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("0.weight is a parameter of another distributed optimizer"));
    EXPECT_EQ(context.stats().submitted, before);
    loss_of(net, global_batch(context.rank())).backward();
    optimizer->step();
    // The first step sends one additional small allreduce.
    EXPECT_EQ(context.stats().submitted, before + 4 + small_messages(context.size(), 0))
        << "each gradient once";
    // One optimizer after the other is allowed.
    optimizer.reset();
    ShardedOptimizer<optim::SGD> next(net->named_parameters(), kSgd, {.context = &context});
    loss_of(net, global_batch(context.rank())).backward();
    next.step();
    EXPECT_TRUE(verify(*net, context));
  });
}

// LibTorch has one hook of C++ for each parameter, which has the program's in a list, and replaces
// all others when the program adds its first one.
TEST(TrapsOfHooks, HooksOfTheProgramStay) {
  on_ranks(2, [](Context& context) {
    auto net = make_net(1);
    int calls = 0;
    const auto count = [&calls](const torch::Tensor& gradient) {
      ++calls;
      return gradient * 2;
    };
    std::vector<torch::Tensor> parameters = net->parameters();
    parameters[0].register_hook(count);
    std::optional<DistributedSGD> optimizer;
    for (int round = 0; round < 2; ++round) {
      optimizer.emplace(net->named_parameters(), kSgd,
                        DistributedOptimizerOptions{.context = &context});
      parameters[1].register_hook(count);
      loss_of(net, global_batch(context.rank())).backward();
      optimizer->step();
      EXPECT_TRUE(verify(*net, context));
      EXPECT_EQ(std::exchange(calls, 0), 2 + round);
      optimizer.reset();
      loss_of(net, global_batch(0)).backward();
      EXPECT_EQ(std::exchange(calls, 0), 2 + round) << "without an optimizer";
    }
  });
}

}  // namespace
}  // namespace hvd::training_traps_test
