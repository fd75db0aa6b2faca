// Tests that training is the same when the optimizer's state is divided.
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include <gmock/gmock.h>

#include "sharded_kinds.hpp"

namespace hvd::sharded_optimizer_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
namespace optim = torch::optim;

constexpr int kSteps = 8;
constexpr double kHalfPrecision = 0.0099;  // of the distance that training went

template <class Base>
std::vector<torch::Tensor> alone(bool grouped = false) {
  const auto options = Settings<Base>::options();
  auto net = make_net(1);
  const auto optimizer = grouped ? std::make_unique<Base>(two_groups(net, options), options)
                                 : std::make_unique<Base>(net->parameters(), options);
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    loss_of(net, global_batch(step)).backward();
    optimizer->step();
  }
  return values_of(net);
}

// Several sizes, so that shards begin and end inside of parameters.
constexpr std::int64_t kBucketSizes[] = {1, 150, 25 << 20};

template <class Base>
class Sharded : public testing::Test {
 protected:
  /// `body` gets a separate net on each rank and trains it.
  static void expect_equal(const std::vector<torch::Tensor>& wanted,
                           std::initializer_list<int> sizes,
                           const std::function<void(Context&, torch::nn::Sequential&)>& body,
                           double tolerance = 1e-5) {
    auto start = make_net(1);
    for (const int size : sizes) {
      Outcomes outcomes(size);
      on_ranks(size, [&](Context& context) {
        auto net = make_net(1 + 10 * static_cast<std::uint64_t>(context.rank()));
        body(context, net);
        outcomes.set(context.rank(), net);
      });
      outcomes.expect(wanted, values_of(start), tolerance);
    }
  }
};
TYPED_TEST_SUITE(Sharded, ShardedKinds);

TYPED_TEST(Sharded, EqualsOneProcess) {
  for (const std::int64_t bytes : kBucketSizes) {
    this->expect_equal(alone<TypeParam>(), {1, 2, 3, 4}, [&](Context& context, auto& net) {
      ShardedOptimizer<TypeParam> optimizer(net->named_parameters(), Settings<TypeParam>::options(),
                                            {.bucket_bytes = bytes, .context = &context});
      train_sharded(net, optimizer, context.rank(), context.size(), 0, kSteps);
    });
  }
}

TYPED_TEST(Sharded, EqualsOneProcessInSeveralPasses) {
  this->expect_equal(alone<TypeParam>(), {1, 2, 3, 4}, [](Context& context, auto& net) {
    ShardedOptimizer<TypeParam> optimizer(net->named_parameters(), Settings<TypeParam>::options(),
                                          {.backward_passes_per_step = 2,
                                           .average_accumulated = true,
                                           .bucket_bytes = 150,
                                           .context = &context});
    train_sharded(net, optimizer, context.rank(), context.size(), 0, kSteps, 2);
  });
}

TYPED_TEST(Sharded, EqualsOneProcessWithoutSyncBeforeTheLastPass) {
  this->expect_equal(alone<TypeParam>(), {2, 3, 4}, [](Context& context, auto& net) {
    ShardedOptimizer<TypeParam> optimizer(net->named_parameters(), Settings<TypeParam>::options(),
                                          {.bucket_bytes = 150, .context = &context});
    for (int step = 0; step < kSteps; ++step) {
      const Batch mine = global_batch(step).of_rank(context.rank(), context.size());
      const std::int64_t half = mine.inputs.size(0) / 2;
      const auto pass = [&](std::int64_t begin) {
        const Batch part{mine.inputs.narrow(0, begin, half), mine.targets.narrow(0, begin, half)};
        (loss_of(net, part) / 2).backward();
      };
      const auto before = context.stats().submitted;
      {
        const auto pause = optimizer.no_sync();
        pass(0);
        // In odd steps the pass covers everything, so that step() sends everything.
        if (step % 2 == 1) pass(half);
      }
      EXPECT_EQ(context.stats().submitted, before);
      if (step % 2 == 0) pass(half);
      optimizer.step();
    }
  });
}

TYPED_TEST(Sharded, EqualsOneProcessWithParameterGroups) {
  this->expect_equal(alone<TypeParam>(true), {1, 2, 3, 4}, [](Context& context, auto& net) {
    const auto options = Settings<TypeParam>::options();
    ShardedOptimizer<TypeParam> optimizer(two_groups(net, options), net->named_parameters(),
                                          options, {.bucket_bytes = 150, .context = &context});
    EXPECT_EQ(optimizer.param_groups().size(), 2U);
    EXPECT_EQ(optimizer.param_groups()[1].options().get_lr(), options.lr() / 2);
    train_sharded(net, optimizer, context.rank(), context.size(), 0, kSteps);
  });
}

TYPED_TEST(Sharded, EqualsOneProcessWithAScaledLoss) {
  this->expect_equal(alone<TypeParam>(), {2, 3, 4}, [](Context& context, auto& net) {
    ShardedOptimizer<TypeParam> sharded(net->named_parameters(), Settings<TypeParam>::options(),
                                        {.backward_passes_per_step = 2,
                                         .average_accumulated = true,
                                         .bucket_bytes = 150,
                                         .context = &context});
    optim::Optimizer& optimizer = sharded;  // what a trainer may know of it
    GradScaler scaler({.init_scale = 256, .growth_interval = 3});
    for (int step = 0; step < kSteps; ++step) {
      const Batch mine = global_batch(step).of_rank(context.rank(), context.size());
      for (int pass = 0; pass < 2; ++pass) scaler.scale(loss_of(net, mine)).backward();
      EXPECT_TRUE(scaler.step(optimizer));
      scaler.update();
    }
  });
}

TYPED_TEST(Sharded, EqualsOneProcessWithAClosureOfSeveralPasses) {
  this->expect_equal(alone<TypeParam>(), {1, 2, 3, 4}, [](Context& context, auto& net) {
    ShardedOptimizer<TypeParam> optimizer(net->named_parameters(), Settings<TypeParam>::options(),
                                          {.backward_passes_per_step = 2,
                                           .average_accumulated = true,
                                           .bucket_bytes = 150,
                                           .context = &context});
    for (int step = 0; step < kSteps; ++step) {
      const Batch mine = global_batch(step).of_rank(context.rank(), context.size());
      const torch::Tensor loss = optimizer.step([&] {
        optimizer.zero_grad();
        torch::Tensor mean = torch::zeros({});
        for (int pass = 0; pass < 2; ++pass) {
          const torch::Tensor one = loss_of(net, mine);
          one.backward();
          mean += one.detach() / 2;
        }
        return mean;
      });
      EXPECT_GT(loss.item<double>(), 0);
    }
  });
}

TYPED_TEST(Sharded, NearlyEqualsOneProcessInHalfPrecision) {
  const auto wanted = alone<TypeParam>();
  auto start = make_net(1);
  const double moved = largest_difference(wanted, values_of(start));
  this->expect_equal(
      wanted, {2, 3, 4},
      [](Context& context, auto& net) {
        ShardedOptimizer<TypeParam> optimizer(
            net->named_parameters(), Settings<TypeParam>::options(),
            {.compression = Compression::fp16, .context = &context});
        train_sharded(net, optimizer, context.rank(), context.size(), 0, kSteps);
      },
      kHalfPrecision * moved);
}

TYPED_TEST(Sharded, EqualsOneProcessThatRoundsToBf16Alike) {
  for (const int size : {2, 3, 4}) {
    auto reference = make_net(1);
    TypeParam alone(reference->parameters(), Settings<TypeParam>::options());
    for (int step = 0; step < kSteps; ++step) {
      backward_through_bf16(reference, step, size);
      alone.step();
    }
    this->expect_equal(
        values_of(reference), {size},
        [](Context& context, auto& net) {
          ShardedOptimizer<TypeParam> optimizer(
              net->named_parameters(), Settings<TypeParam>::options(),
              {.compression = Compression::bf16, .bucket_bytes = 150, .context = &context});
          train_sharded(net, optimizer, context.rank(), context.size(), 0, kSteps);
        },
        1e-4);
  }
}

using ShardedAdam = ShardedOptimizer<optim::Adam>;
using ShardedSGD = ShardedOptimizer<optim::SGD>;
const auto kAdam = optim::AdamOptions(0.01);

class ShardedAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShardedAt, testing::Values(1, 2, 3, 4));

TEST_P(ShardedAt, KeepsItsShareOfTheState) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    std::int64_t elements = 0;
    for (const auto& parameter : net->parameters()) elements += parameter.numel();
    ShardedAdam optimizer(net->named_parameters(), kAdam, {.context = &context});
    train_sharded(net, optimizer, context.rank(), context.size(), 0, 1);
    std::int64_t kept = 0;
    for (const auto& [key, state] : optimizer.state()) {
      kept += static_cast<const optim::AdamParamState&>(*state).exp_avg().numel();
    }
    EXPECT_LE(kept, elements / context.size() + 1);
    EXPECT_GE(kept, elements / context.size());
    for (const auto& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
  });
}

// LibTorch's own function sees no gradients, because they are in the buckets.
TEST_P(ShardedAt, ClipsTheNormOfAllGradients) {
  const int size = GetParam();
  constexpr double kGreatest = std::numeric_limits<double>::infinity();
  for (const double norm_type : {2.0, 1.0, 3.0, kGreatest}) {
    for (const double factor : {0.01, 2.0}) {  // of the norm; 2 leaves the gradients as they are
      auto reference = make_net(1);
      const auto one = optim::SGDOptions(1);
      optim::SGD sgd(two_groups(reference, one), one);
      loss_of(reference, global_batch(0)).backward();
      const double max =
          factor * torch::nn::utils::clip_grad_norm_(reference->parameters(), 1e9, norm_type);
      const double norm =
          torch::nn::utils::clip_grad_norm_(reference->parameters(), max, norm_type);
      sgd.step();
      ASSERT_GT(norm, 0.1);
      Outcomes outcomes(size);
      on_ranks(size, [&](Context& context) {
        auto net = make_net(1);
        ShardedSGD optimizer(two_groups(net, one), net->named_parameters(), one,
                             {.bucket_bytes = 150, .context = &context});
        loss_of(net, global_batch(0).of_rank(context.rank(), size)).backward();
        EXPECT_EQ(torch::nn::utils::clip_grad_norm_(net->parameters(), max, norm_type), 0);
        EXPECT_NEAR(optimizer.clip_grad_norm(max, norm_type), norm, 1e-5 * norm);
        optimizer.step();
        outcomes.set(context.rank(), net);
      });
      auto start = make_net(1);
      outcomes.expect(values_of(reference), values_of(start), 1e-6);
    }
  }
}

TEST_P(ShardedAt, AGradientThatIsNoNumberMakesTheNormAndAllGradientsSo) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    for (const double norm_type : {2.0, std::numeric_limits<double>::infinity()}) {
      auto net = make_net(1);
      ShardedSGD optimizer(net->named_parameters(), optim::SGDOptions(1),
                           {.bucket_bytes = 150, .context = &context});
      // The element belongs to the shard of one rank.
      const torch::Tensor element = net->parameters()[1][0];
      const double nan = std::numeric_limits<double>::quiet_NaN();
      (loss_of(net, global_batch(0)) + element * nan).backward();
      EXPECT_TRUE(std::isnan(optimizer.clip_grad_norm(1, norm_type)));
      optimizer.step();
      for (const auto& values : values_of(net)) {
        EXPECT_TRUE(values.isnan().all().item<bool>());
      }
    }
  });
}

TEST_P(ShardedAt, AScaledLossTrainsAlikeAndAnInfiniteOneIsSkippedByAll) {
  const int size = GetParam();
  const auto wanted = alone<optim::SGD>();
  Outcomes outcomes(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    ShardedSGD optimizer(net->named_parameters(), Settings<optim::SGD>::options(),
                         {.bucket_bytes = 150, .context = &context});
    GradScaler scaler({.init_scale = 1024});
    for (int step = 0; step < kSteps; ++step) {
      const Batch mine = global_batch(step).of_rank(context.rank(), size);
      if (step == 3) {
        const double factor =
            context.rank() + 1 == size ? std::numeric_limits<double>::infinity() : 1;
        scaler.scale(loss_of(net, mine) * factor).backward();
        EXPECT_FALSE(scaler.step(optimizer));
        scaler.update();
        EXPECT_EQ(scaler.scale_factor(), 512);
      }
      scaler.scale(loss_of(net, mine)).backward();
      EXPECT_TRUE(scaler.step(optimizer));
      scaler.update();
    }
    outcomes.set(context.rank(), net);
  });
  auto start = make_net(1);
  outcomes.expect(wanted, values_of(start));
}

// The other ranks, which have made none, would wait for a rank that left the step before its end.
TEST_P(ShardedAt, AMistakeOfOneRankIsReportedWhenAllHaveStepped) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    ShardedSGD optimizer(net->named_parameters(), optim::SGDOptions(0.1),
                         {.bucket_bytes = 150, .context = &context});
    GradScaler scaler({.init_scale = 1024});
    for (int step = 0; step < 3; ++step) {
      const Batch mine = global_batch(step).of_rank(context.rank(), size);
      const auto pass = [&] { scaler.scale(loss_of(net, mine)).backward(); };
      const auto finish = [&] {
        scaler.unscale_(optimizer);
        EXPECT_TRUE(std::isfinite(optimizer.clip_grad_norm(1)));
        EXPECT_TRUE(scaler.step(optimizer));
      };
      pass();
      if (context.rank() == 0 && step == 1) {
        EXPECT_EQ(code_of(pass), Errc::invalid_argument);  // one pass too many
        EXPECT_EQ(code_of(finish), Errc::invalid_argument);
      } else {
        finish();
      }
      scaler.update();
    }
    EXPECT_TRUE(verify(*net, context));
  });
}

TEST_P(ShardedAt, AClosureIsCalledOnceAndItsLossAveraged) {
  const int size = GetParam();
  auto reference = make_net(1);
  const double wanted = loss_of(reference, global_batch(0)).item<double>();
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    ShardedAdam optimizer(net->named_parameters(), kAdam,
                          {.bucket_bytes = 150, .context = &context});
    int calls = 0;
    const torch::Tensor loss = optimizer.step([&] {
      ++calls;
      torch::Tensor mine = loss_of(net, global_batch(0).of_rank(context.rank(), size));
      mine.backward();
      return mine;
    });
    EXPECT_EQ(calls, 1);
    EXPECT_NEAR(loss.item<double>(), wanted, 1e-5);
    EXPECT_TRUE(verify(*net, context));
  });
}

TEST_P(ShardedAt, FrozenParametersStayAndComeBack) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    const torch::Tensor bias = net->parameters()[1];
    ShardedOptimizer<optim::SGD> optimizer(
        net->named_parameters(), optim::SGDOptions(0.1).momentum(0.9), {.context = &context});
    const auto train = [&](int step) {
      train_sharded(net, optimizer, context.rank(), context.size(), step, step + 1);
    };
    train(0);
    net->parameters()[1].set_requires_grad(false);
    const torch::Tensor before = bias.detach().clone();
    train(1);
    train(2);
    EXPECT_TRUE(torch::equal(bias, before)) << "momentum moved a frozen parameter";
    net->parameters()[1].set_requires_grad(true);
    train(3);
    EXPECT_FALSE(torch::equal(bias.detach(), before));
    EXPECT_TRUE(verify(*net, context));
  });
}

TEST_P(ShardedAt, WhatTheUserDoesToParametersCounts) {
  const auto change = [](torch::nn::Sequential& net) {
    const torch::NoGradGuard no_grad;
    net->parameters()[0].fill_(0.25);
    net->parameters()[2].set_data(torch::full({kClasses, 8}, 0.5));  // as torch::load does
  };
  auto reference = make_net(1);
  optim::SGD sgd(reference->parameters(), optim::SGDOptions(0.1));
  change(reference);
  loss_of(reference, global_batch(0)).backward();
  sgd.step();
  const auto values_after_one_step = values_of(reference);
  sgd.zero_grad();
  loss_of(reference, global_batch(1)).backward();
  sgd.step();
  const auto values_after_two_steps = values_of(reference);
  on_ranks(GetParam(), [&](Context& context) {
    auto net = make_net(1);
    ShardedSGD optimizer(net->named_parameters(), optim::SGDOptions(0.1), {.context = &context});
    change(net);
    train_sharded(net, optimizer, context.rank(), context.size(), 0, 1);
    EXPECT_LT(largest_difference(values_of(net), values_after_one_step), 1e-5);
    EXPECT_TRUE(verify(*net, context));

    for (auto& parameter : net->parameters()) parameter.set_data(parameter.to(torch::kFloat64));
    std::string message;
    EXPECT_EQ(code_of([&] { optimizer.step(); }, &message), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("was moved to another dtype"));

    for (auto& parameter : net->parameters()) parameter.set_data(parameter.to(torch::kFloat32));
    train_sharded(net, optimizer, context.rank(), context.size(), 1, 2);
    EXPECT_LT(largest_difference(values_of(net), values_after_two_steps), 1e-5);
  });
}

/// In every second step rank 0 has an operation, the intruder, under the name of a bucket's
/// gradients. The other ranks begin their pass after rank 0 has tried to send the bucket, and rank
/// 0 steps when their gradients have made the intruder fail: the name is free then, but the bucket
/// has failed.
TEST_P(ShardedAt, AfterAFailedStepTheNextOneIsRight) {
  const int size = GetParam();
  if (size == 1) return;
  std::atomic<int> tried{-1};
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    auto reference = make_net(1);
    optim::SGD sgd(reference->parameters(), optim::SGDOptions(0.1));
    // The instance number in the names, as the optimizer chooses it.
    const auto instance = std::to_string(context.stats().submitted);
    ShardedSGD optimizer(net->named_parameters(), optim::SGDOptions(0.1),
                         {.weighted = true, .bucket_bytes = 150, .context = &context});
    for (int step = 0; step < 5; ++step) {
      const bool fails = step % 2 == 1;
      const auto before = values_of(net);
      TensorWork intruder;
      if (fails && context.rank() == 0) {
        intruder = allreduce_async(
            torch::ones({7}), {.name = "sharded/" + instance + "/0/gradient", .context = &context});
      }
      optimizer.set_weight(1);
      const auto deadline = Clock::now() + std::chrono::seconds(60);
      while (fails && context.rank() != 0 && tried < step) {
        ASSERT_LT(Clock::now(), deadline);
        std::this_thread::yield();
      }
      loss_of(net, global_batch(step).of_rank(context.rank(), size)).backward();
      if (!fails) {
        optimizer.step();
        const torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < before.size(); ++i) reference->parameters()[i].copy_(before[i]);
        const torch::AutoGradMode with_gradients(true);
        sgd.zero_grad();
        loss_of(reference, global_batch(step)).backward();
        sgd.step();
        EXPECT_LT(largest_difference(values_of(net), values_of(reference)), 1e-5);
      } else {
        if (intruder.valid()) {
          tried = step;
          EXPECT_EQ(code_of([&] { intruder.wait(); }), Errc::mismatch);
        }
        EXPECT_EQ(code_of([&] { optimizer.step(); }),
                  context.rank() == 0 ? Errc::duplicate_name : Errc::mismatch);
        EXPECT_TRUE(torch::equal(values_of(net)[3], before[3])) << "the first bucket has failed";
      }
      EXPECT_TRUE(verify(*net, context));
    }
  });
}

TEST_P(ShardedAt, ASharedLayerIsSteppedOnce) {
  const int size = GetParam();
  const auto tied = [] {
    torch::nn::Linear layer(kFeatures, kFeatures);
    const torch::NoGradGuard no_grad;
    layer->weight.copy_(normal({kFeatures, kFeatures}, 1, 0.5));
    layer->bias.zero_();
    return torch::nn::Sequential(layer, torch::nn::Tanh(), layer);
  };
  const auto loss = [](torch::nn::Sequential& net, const Batch& batch) {
    return net->forward(batch.inputs).square().mean();
  };
  auto reference = tied();
  optim::SGD sgd(NamedTensors(reference->named_parameters()).distinct().tensors(),
                 optim::SGDOptions(0.1));
  loss(reference, global_batch(0)).backward();
  sgd.step();
  on_ranks(size, [&](Context& context) {
    auto net = tied();
    ShardedSGD optimizer(net->named_parameters(), optim::SGDOptions(0.1), {.context = &context});
    loss(net, global_batch(0).of_rank(context.rank(), size)).backward();
    optimizer.step();
    auto start = tied();
    EXPECT_LT(largest_difference(values_of(net), values_of(reference)), 1e-6);
    EXPECT_GT(largest_difference(values_of(net), values_of(start)), 1e-3);
    EXPECT_TRUE(verify(*net, context));
  });
}

TEST_P(ShardedAt, ProcessSetsTrainAModelEach) {
  const int size = GetParam();
  // Even and odd ranks use the same names.
  const auto members = [size](int parity) {
    std::vector<int> ranks;
    for (int rank = parity; rank < size; rank += 2) ranks.push_back(rank);
    return ranks;
  };
  on_ranks(size, [&](Context& context) {
    ProcessSet mine;
    for (int parity = 0; parity < std::min(size, 2); ++parity) {
      const ProcessSet set = context.add_process_set(members(parity));
      if (context.rank() % 2 == parity) mine = set;
    }
    const int parity = context.rank() % 2;
    const int ranks = static_cast<int>(members(parity).size());
    auto net = make_net(1 + static_cast<std::uint64_t>(parity));
    auto start = make_net(1 + static_cast<std::uint64_t>(parity));
    auto reference = make_net(1 + static_cast<std::uint64_t>(parity));
    optim::Adam adam(reference->parameters(), kAdam);
    ShardedAdam optimizer(net->named_parameters(), kAdam,
                          {.bucket_bytes = 150, .process_set = mine.id, .context = &context});
    double norm = 0;
    for (int step = 0; step < kSteps; ++step) {
      loss_of(net, global_batch(step).of_rank(context.rank() / 2, ranks)).backward();
      norm = optimizer.clip_grad_norm(0.1);
      optimizer.step();
      adam.zero_grad();
      loss_of(reference, global_batch(step)).backward();
      EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(reference->parameters(), 0.1), norm, 1e-4);
      adam.step();
    }
    EXPECT_LT(largest_difference(values_of(net), values_of(reference)), 1e-5);
    EXPECT_GT(largest_difference(values_of(net), values_of(start)), 1e-3);
  });
}

TEST_P(ShardedAt, UnusedParametersAndForgottenGradientsDoNotHang) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    ShardedAdam optimizer(net->named_parameters(), kAdam,
                          {.bucket_bytes = 150, .context = &context});
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      net->parameters()[static_cast<std::size_t>((step + context.rank()) % 4)].sum().backward();
      if (step == 2) continue;
      optimizer.step();
    }
    EXPECT_TRUE(verify(*net, context));
  });
}

TEST_P(ShardedAt, MisuseIsNamed) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    const auto parameters = net->parameters();
    std::string message;
    const auto refuses = [&](const std::vector<optim::OptimizerParamGroup>& groups,
                             ShardedOptimizerOptions options) {
      options.context = &context;
      const auto before = context.stats().submitted;
      const auto construct = [&] {
        ShardedAdam bad(groups, net->named_parameters(), kAdam, options);
      };
      EXPECT_EQ(code_of(construct, &message), Errc::invalid_argument);
      EXPECT_EQ(context.stats().submitted, before);
      return message;
    };
    EXPECT_THAT(refuses({parameters}, {.bucket_bytes = 0}), HasSubstr("bucket_bytes is 0"));
    EXPECT_THAT(refuses({parameters}, {.backward_passes_per_step = 0}),
                HasSubstr("backward_passes_per_step is 0"));
    EXPECT_THAT(refuses({parameters}, {.op = ReduceOp::max}), HasSubstr("not max"));
    EXPECT_THAT(refuses({parameters, std::vector<torch::Tensor>{parameters[1]}}, {}),
                HasSubstr("in the groups twice"));
    EXPECT_THAT(refuses({std::vector<torch::Tensor>{torch::ones({2}, torch::requires_grad())}}, {}),
                HasSubstr("ShardedOptimizer: 1 parameters of the optimizer have no name"));
    EXPECT_THAT(refuses({}, {}), HasSubstr("no parameters"));
    {
      // Two tensors share memory, which two buckets would separate.
      const torch::Tensor one = torch::ones({2}, torch::requires_grad());
      const torch::Tensor same = one.detach().set_requires_grad(true);
      const auto construct = [&] {
        ShardedAdam bad(NamedTensors{{"one", one}, {"same", same}}, kAdam, {.context = &context});
      };
      EXPECT_EQ(code_of(construct, &message), Errc::invalid_argument);
      EXPECT_THAT(message, HasSubstr("one and same are two tensors with the same memory"));
    }

    ShardedAdam optimizer(net->named_parameters(), kAdam, {.context = &context});
    EXPECT_THAT(refuses({parameters}, {}), HasSubstr("another distributed optimizer"));
    EXPECT_EQ(code_of([&] { optimizer.clip_grad_norm(1, 0); }, &message), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("norm_type is 0, not positive"));

    loss_of(net, global_batch(0)).backward();
    EXPECT_EQ(code_of([&] { loss_of(net, global_batch(0)).backward(); }, &message),
              Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("more than backward_passes_per_step = 1 backward passes"));
    EXPECT_EQ(code_of([&] { optimizer.step(); }), Errc::invalid_argument);
    loss_of(net, global_batch(0)).backward();
    {
      const auto pause = optimizer.no_sync();
      loss_of(net, global_batch(0)).backward();
    }
    EXPECT_EQ(code_of([&] { optimizer.step(); }, &message), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("before the last"));
    // Training continues.
    loss_of(net, global_batch(0)).backward();
    optimizer.step();
    EXPECT_TRUE(verify(*net, context));
  });
}

}  // namespace
}  // namespace hvd::sharded_optimizer_test
