// Tests that gradients are averaged when backward() returns, so that they may be clipped, read and
// added to, and that errors are known then.
#include <atomic>
#include <latch>
#include <thread>

#include <gmock/gmock.h>
#include <torch/csrc/autograd/engine.h>

#include "own_compressor.hpp"
#include "training.hpp"

namespace hvd::final_gradients_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::ContainsRegex;
using testing::HasSubstr;
using torch::optim::Optimizer;
using DistributedSGD = DistributedOptimizer<torch::optim::SGD>;

const auto kSgd = torch::optim::SGDOptions(0.1).momentum(0.9);
constexpr int kSteps = 8;

class FinalGradients : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, FinalGradients, testing::Values(1, 2, 3));

/// A net that is large enough for the reduction to outlast the backward pass.
torch::nn::Sequential make_wide_net() {
  torch::nn::Sequential net(torch::nn::Linear(kFeatures, 512), torch::nn::Tanh(),
                            torch::nn::Linear(512, 512), torch::nn::Tanh(),
                            torch::nn::Linear(512, kClasses));
  const torch::NoGradGuard no_grad;
  std::uint64_t seed = 40;
  for (auto& each : net->parameters()) each.copy_(normal(each.sizes(), ++seed, 0.1));
  return net;
}

// LibTorch's clipping does not increase the version of a gradient, so nothing else would detect it.
TEST_P(FinalGradients, ClippedBetweenBackwardAndStepTheyTrainAsOneProcessDoes) {
  const int size = GetParam();
  using Clip = std::function<void(const std::vector<torch::Tensor>&)>;
  const Clip by_norm = [](const auto& all) { torch::nn::utils::clip_grad_norm_(all, 0.1); };
  const Clip by_value = [](const auto& all) { torch::nn::utils::clip_grad_value_(all, 0.01); };
  for (const Clip& clip : {by_norm, by_value}) {
    const auto train = [&](torch::nn::Sequential& net, Optimizer& optimizer, int rank, int ranks) {
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        loss_of(net, global_batch(step).of_rank(rank, ranks)).backward();
        clip(net->parameters());
        optimizer.step();
      }
    };
    auto reference = make_wide_net();
    const auto start = values_of(reference);
    torch::optim::SGD sgd(reference->parameters(), kSgd);
    train(reference, sgd, 0, 1);
    Outcomes outcomes(size);
    on_ranks(size, [&](Context& context) {
      auto net = make_wide_net();
      DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context});
      train(net, optimizer, context.rank(), size);
      outcomes.set(context.rank(), net);
    });
    outcomes.expect(values_of(reference), start);
  }
}

// Each rank uses one parameter, another one in each step. No rank uses the last parameter after
// step 0.
TEST_P(FinalGradients, WhereRanksUseDifferentParameters) {
  const int size = GetParam();
  const std::vector<DistributedOptimizerOptions> ways{{},
                                                      {.num_groups = 2},
                                                      {.compressor = std::make_shared<Averages>()},
                                                      {.compression = Compression::bf16}};
  on_ranks(size, [&](Context& context) {
    for (DistributedOptimizerOptions options : ways) {
      options.context = &context;
      std::vector<NamedTensors::Item> items;
      for (int i = 0; i < size + 1; ++i) {
        items.emplace_back(std::to_string(i), torch::ones({5}, torch::requires_grad()));
      }
      DistributedSGD optimizer(NamedTensors(items), kSgd, options);
      std::vector<bool> is_defined(items.size());
      for (int step = 0; step < 6; ++step) {
        optimizer.zero_grad(step % 2 == 0);
        const auto used = [&](int rank) { return (rank + step) % (step == 0 ? size + 1 : size); };
        const auto mine = static_cast<std::size_t>(used(context.rank()));
        (items[mine].second * (context.rank() + 1.0)).sum().backward();
        std::vector<double> wanted(items.size());
        for (int rank = 0; rank < size; ++rank) {
          wanted[static_cast<std::size_t>(used(rank))] += (rank + 1.0) / size;
        }
        for (std::size_t i = 0; i < items.size(); ++i) {
          SCOPED_TRACE("parameter " + std::to_string(i) + " in step " + std::to_string(step));
          const torch::Tensor& gradient = items[i].second.grad();
          // As in one process, what nobody has used stays undefined or zero.
          is_defined[i] = wanted[i] != 0 || (is_defined[i] && step % 2 == 1);
          ASSERT_EQ(gradient.defined(), is_defined[i]);
          if (is_defined[i]) {
            EXPECT_NEAR(gradient[4].item<double>(), wanted[i], 1e-2);
          }
        }
        optimizer.step();
      }
      EXPECT_TRUE(verify(NamedTensors(items), context));
    }
  });
}

// With momentum and weight decay, a gradient of zeros would change the parameter.
TEST_P(FinalGradients, WhatNoRankHasUsedIsNotStepped) {
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.5);
  on_ranks(GetParam(), [&](Context& context) {
    torch::Tensor used = torch::ones({3}, torch::requires_grad());
    torch::Tensor unused = torch::ones({3}, torch::requires_grad());
    DistributedSGD optimizer(NamedTensors{{"used", used}, {"unused", unused}}, options,
                             {.context = &context});
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      torch::Tensor loss = used.sum();
      if (step == 1) loss = loss + unused.sum();
      const torch::Tensor before = unused.detach().clone();
      loss.backward();
      EXPECT_EQ(unused.grad().defined(), step == 1);
      optimizer.step();
      EXPECT_EQ(torch::equal(unused, before), step != 1) << "step " << step;
    }
  });
}

TEST_P(FinalGradients, UnequalNumbersOfPassesAreAnErrorOnAllRanks) {
  const int size = GetParam();
  if (size == 1) return;
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context});
    const auto pass = [&] {
      loss_of(net, global_batch(0).of_rank(context.rank(), size)).backward();
    };
    const auto step = [&](int passes) {
      optimizer.zero_grad();
      for (int i = 0; i < passes; ++i) pass();
      optimizer.step();
    };
    step(1);
    step(2);
    const auto before = values_of(net);
    std::string message;
    // The last rank is in the next step when the others make their second pass.
    const bool is_last = context.rank() == size - 1;
    const auto code = code_of(
        [&] {
          step(is_last ? 1 : 2);
          step(1);
        },
        &message);
    EXPECT_EQ(code, Errc::mismatch);
    EXPECT_THAT(message, HasSubstr("rank 0 reduces the gradients of pass 2 of a step, and rank " +
                                   std::to_string(size - 1) + " those of pass 1 of its next step"));
    EXPECT_EQ(torch::equal(before[0], values_of(net)[0]), !is_last) << "only the last has stepped";
  });
}

TEST_P(FinalGradients, ARankWhosePassUsesNothingTakesPartInItsStep) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    torch::Tensor weight = torch::zeros({3}, torch::requires_grad());
    DistributedSGD optimizer(NamedTensors{{"weight", weight}}, torch::optim::SGDOptions(1),
                             {.context = &context});
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      if (context.rank() == step % size) {
        weight.sum().backward();
        EXPECT_NEAR(weight.grad()[0].item<double>(), 1.0 / size, 1e-6);
      }
      optimizer.step();
      EXPECT_NEAR(weight[0].item<double>(), -(step + 1.0) / size, 1e-5);
    }
  });
}

// A pass reduces only its own gradients, so sums are not reduced again.
TEST_P(FinalGradients, SeveralPassesOfOneStepAddUp) {
  const int size = GetParam();
  const auto passes = [](torch::nn::Sequential& net, int step, int rank, int ranks) {
    const Batch batch = global_batch(step).of_rank(rank, ranks);
    loss_of(net, batch).backward();                   // all parameters
    net->parameters()[3].square().sum().backward();   // one of them again
    net->parameters()[0].square().mean().backward();  // another
  };
  for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum}) {
    auto reference = make_net(1);
    torch::optim::SGD sgd(reference->parameters(), kSgd);
    for (int step = 0; step < kSteps; ++step) {
      sgd.zero_grad();
      passes(reference, step, 0, 1);
      sgd.step();
    }
    auto start = make_net(1);
    Outcomes outcomes(size);
    on_ranks(size, [&](Context& context) {
      auto net = make_net(1);
      DistributedSGD optimizer(net->named_parameters(), kSgd, {.op = op, .context = &context});
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad(step % 2 == 0);
        passes(net, step, context.rank(), size);
        if (op == ReduceOp::sum) {
          for (auto& each : net->parameters()) each.mutable_grad().div_(size);
        }
        optimizer.step();
      }
      outcomes.set(context.rank(), net);
    });
    outcomes.expect(values_of(reference), values_of(start));
  }
}

// Two optimizers whose parameters get gradients in different orders on each rank, and not all of
// them. Neither may wait before both have submitted what the other ranks wait for.
TEST_P(FinalGradients, OfTwoOptimizersInOnePass) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    auto a = make_net(1);
    auto b = make_net(2);
    DistributedSGD first(a->named_parameters(), kSgd, {.context = &context});
    DistributedSGD second(b->named_parameters(), kSgd, {.context = &context});
    for (int step = 0; step < 5; ++step) {
      first.zero_grad();
      second.zero_grad();
      torch::Tensor x = a->parameters()[1].square().sum();
      torch::Tensor y = b->parameters()[3].square().sum();
      // Autograd evaluates first what was recorded last.
      const bool swapped = (context.rank() + step) % 2 == 0;
      if (swapped) x = x + a->parameters()[0].sum();
      (swapped ? y + x : x * 1.0 + y).backward();
      EXPECT_TRUE(
          verify(NamedTensors{{"a", a->parameters()[0].grad()}, {"b", b->parameters()[3].grad()}},
                 context));
      second.step();
      first.step();
    }
    EXPECT_TRUE(verify(a, context));
    EXPECT_TRUE(verify(b, context));
  });
}

TEST_P(FinalGradients, PassesThatSendNothingWaitForNothing) {
  const int size = GetParam();
  std::latch passed(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), kSgd,
                             {.backward_passes_per_step = 2, .context = &context});
    // Ranks run one after the other, so a rank that waited for the others would reach the deadline.
    const auto pass = [&] { loss_of(net, global_batch(0)).backward(); };
    {
      const auto pause = optimizer.no_sync();
      pass();
    }
    pass();
    passed.count_down();
    const Deadline deadline = Clock::now() + std::chrono::seconds(20);
    while (!passed.try_wait()) {
      ASSERT_LT(Clock::now(), deadline);
      std::this_thread::yield();
    }
    pass();
    EXPECT_TRUE(verify(NamedTensors{{"gradient", net->parameters()[0].grad()}}, context));
    optimizer.step();
  });
}

// Otherwise reduced and unreduced gradients could not be told apart.
TEST_P(FinalGradients, AreNotAddedToByPassesThatAreNotSent) {
  on_ranks(GetParam(), [&](Context& context) {
    for (const int planned : {1, 2}) {
      auto net = make_net(1);
      DistributedSGD optimizer(net->named_parameters(), kSgd,
                               {.backward_passes_per_step = planned, .context = &context});
      const auto pass = [&] { loss_of(net, global_batch(0)).backward(); };
      for (int i = 0; i < planned; ++i) pass();
      std::string message;
      const auto quietly = [&] {
        const auto pause = optimizer.no_sync();
        pass();
      };
      EXPECT_EQ(code_of(quietly, &message), Errc::invalid_argument);
      EXPECT_THAT(message, HasSubstr("under no_sync()"));
      if (planned > 1) {
        EXPECT_EQ(code_of(pass, &message), Errc::invalid_argument);
        EXPECT_THAT(message, HasSubstr("beyond backward_passes_per_step"));
      }
      EXPECT_EQ(code_of([&] { optimizer.step(); }), Errc::invalid_argument);
      // After zero_grad(), with or without set_to_none, the result is right.
      for (const bool to_none : {true, false}) {
        static_cast<Optimizer&>(optimizer).zero_grad(to_none);
        EXPECT_EQ(code_of(quietly), std::nullopt);
        for (int i = 0; i < planned; ++i) pass();
        EXPECT_TRUE(verify(NamedTensors{{"gradient", net->parameters()[0].grad()}}, context));
      }
      optimizer.step();
      EXPECT_TRUE(verify(net, context));
    }
  });
}

/// Works like gradient checkpointing: a part of the network is not recorded, and the backward pass
/// evaluates it again and calls backward() for it.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static torch::Tensor forward(torch::autograd::AutogradContext* saved, const torch::Tensor& input,
                               std::int64_t part) {
    saved->saved_data["part"] = part;
    saved->save_for_backward({input});
    return call(part, input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::AutoGradMode with_gradients(true);
    const torch::Tensor input = saved->get_saved_variables()[0].detach().requires_grad_();
    call(saved->saved_data["part"].toInt(), input).backward(gradients[0]);
    return {input.grad(), torch::Tensor()};
  }
  static torch::Tensor call(std::int64_t part, const torch::Tensor& input) {
    return (*reinterpret_cast<std::function<torch::Tensor(const torch::Tensor&)>*>(part))(input);
  }
};

TEST_P(FinalGradients, OfNestedPasses) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    const torch::Tensor bias = normal({kClasses}, 7).requires_grad_();
    std::vector<NamedTensors::Item> items = NamedTensors(net->named_parameters()).items();
    items.emplace_back("bias", bias);
    DistributedSGD optimizer(NamedTensors(items), torch::optim::SGDOptions(0),
                             {.context = &context});
    using Part = std::function<torch::Tensor(const torch::Tensor&)>;
    const Part lower = [&](const torch::Tensor& x) {
      return torch::tanh(torch::linear(x, net->parameters()[0], net->parameters()[1]));
    };
    const Part upper = [&](const torch::Tensor& x) {
      return torch::linear(x, net->parameters()[2], net->parameters()[3]);
    };
    const Part upper_and_bias = [&](const torch::Tensor& x) { return upper(x) + bias; };
    const auto backward = [&](bool nested, const Part& last, bool outer_bias) {
      optimizer.zero_grad();
      const Batch batch = global_batch(0).of_rank(context.rank(), size);
      torch::Tensor x = batch.inputs.detach().clone().requires_grad_();
      for (const Part* part : {&lower, &last}) {
        x = nested ? Checkpoint::apply(x, reinterpret_cast<std::int64_t>(part)) : (*part)(x);
      }
      torch::mse_loss(outer_bias ? x + bias : x, batch.targets).backward();
    };
    const auto gradients = [&] {
      std::vector<torch::Tensor> all;
      for (const auto& item : items) {
        const torch::Tensor& gradient = item.second.grad();
        all.push_back(gradient.defined() ? gradient.clone() : torch::zeros_like(item.second));
      }
      return all;
    };
    backward(false, upper, true);
    const auto with_bias = gradients();
    optimizer.step();
    backward(false, upper, false);
    const auto without_bias = gradients();
    optimizer.step();

    auto before = context.stats().submitted;
    backward(true, upper, true);
    EXPECT_LT(largest_difference(gradients(), with_bias), 1e-6) << "the bias is in the outer pass";
    optimizer.step();
    backward(true, upper_and_bias, false);
    EXPECT_LT(largest_difference(gradients(), with_bias), 1e-6) << "all are in nested passes";
    optimizer.step();
    EXPECT_EQ(context.stats().submitted - before, 2 * (items.size() + small_messages(size, 1)))
        << "each is sent once";

    // It is unknown which nested pass is the last, so step() throws, and synchronize() helps.
    backward(true, upper, false);
    std::string message;
    EXPECT_EQ(code_of([&] { optimizer.step(); }, &message), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("bias got none; call synchronize()"));
    backward(true, upper, false);
    optimizer.synchronize();
    EXPECT_LT(largest_difference(gradients(), without_bias), 1e-6);
    optimizer.step();

    // The lower layer is in two nested passes, or in the outer pass and then in a nested one.
    for (const bool in_outer : {false, true}) {
      const auto backward_twice = [&](bool nested) {
        optimizer.zero_grad();
        const Batch batch = global_batch(0).of_rank(context.rank(), size);
        const torch::Tensor x = batch.inputs.detach().clone().requires_grad_();
        const auto segment = [&](const torch::Tensor& inputs) {
          return nested ? Checkpoint::apply(inputs, reinterpret_cast<std::int64_t>(&lower))
                        : lower(inputs);
        };
        const torch::Tensor loss = torch::mse_loss(upper(segment(x)) + bias, batch.targets);
        const torch::Tensor other = in_outer ? net->parameters()[0] : segment(2 * x);
        (loss + other.square().mean()).backward();
      };
      backward_twice(false);
      const auto wanted = gradients();
      optimizer.step();
      EXPECT_EQ(code_of([&] { backward_twice(true); }, &message), Errc::invalid_argument);
      EXPECT_THAT(message, ContainsRegex("0.(weight|bias) got gradients from two passes inside one "
                                         "backward.*auto pause = optimizer.no_sync"));
      EXPECT_EQ(code_of([&] { optimizer.synchronize(); }), Errc::invalid_argument);
      {
        const auto pause = optimizer.no_sync();
        backward_twice(true);
      }
      optimizer.synchronize();
      EXPECT_LT(largest_difference(gradients(), wanted), 1e-6);
      optimizer.step();
    }
  });
}

TEST_P(FinalGradients, FailuresNameTheCulpritWhenThePassEnds) {
  const int size = GetParam();
  if (size == 1) return;
  std::latch all_stepped(size);
  std::latch all_failed(size - 1);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context});
    const auto pass = [&] { loss_of(net, global_batch(0)).backward(); };
    pass();
    optimizer.step();
    optimizer.zero_grad();
    all_stepped.arrive_and_wait();
    if (context.rank() == size - 1) {
      context.disconnect();
      all_failed.wait();
      return;
    }
    std::string message;
    EXPECT_EQ(code_of(pass, &message), Errc::peer_lost);
    EXPECT_THAT(message, HasSubstr("rank " + std::to_string(size - 1)));
    EXPECT_EQ(code_of([&] { optimizer.step(); }), Errc::peer_lost) << "it stepped all the same";
    all_failed.count_down();
  });
}

// One operation fails on all ranks, and the job goes on.
/// In every second step rank 0 has an operation, the intruder, under the name of a gradient. The
/// other ranks begin their pass after rank 0 has tried to submit that gradient, and rank 0 goes on
/// when their gradients have made the intruder fail: its name is free then, but the gradient has
/// failed.
TEST_P(FinalGradients, AfterAFailedPassTheNextOneIsRight) {
  const int size = GetParam();
  std::atomic<int> tried{-1};
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    // The instance number in the names, as DistributedOptimizer chooses it.
    const auto instance = std::to_string(context.stats().submitted);
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context});
    // Its reduction succeeds, and must end although that of the first optimizer fails.
    auto other = make_wide_net();
    DistributedSGD second(other->named_parameters(), kSgd, {.context = &context});
    TensorWork intruder;
    int step = 0;
    const auto end_intruder = [&] {
      tried = step;
      EXPECT_EQ(code_of([&] { intruder.wait(); }), Errc::mismatch);
    };
    net->parameters()[0].register_hook([&](const torch::Tensor&) {
      // This callback comes after all hooks of the pass, and before the optimizer waits.
      if (intruder.valid() && size > 1) {
        torch::autograd::Engine::get_default_engine().queue_callback(end_intruder);
      }
    });
    const auto pass = [&] {
      const Batch batch = global_batch(0).of_rank(context.rank(), size);
      (loss_of(net, batch) + loss_of(other, batch)).backward();
    };
    for (; step < 7; ++step) {
      optimizer.zero_grad();
      second.zero_grad();
      intruder = {};
      if (step % 2 == 1 && context.rank() == 0) {
        intruder = allreduce_async(
            torch::ones({7}), {.name = "gradient/" + instance + "/0.bias", .context = &context});
      }
      if (step % 2 == 1 && size > 1) {
        const auto deadline = Clock::now() + std::chrono::seconds(60);
        while (context.rank() != 0 && tried < step) {
          ASSERT_LT(Clock::now(), deadline);
          std::this_thread::yield();
        }
        std::string message;
        const auto code = code_of(pass, &message);
        EXPECT_EQ(code, context.rank() == 0 ? Errc::duplicate_name : Errc::mismatch) << message;
        // This throws while a gradient is being reduced.
        EXPECT_EQ(code_of([&] { second.zero_grad(); }, &message), std::nullopt) << message;
        EXPECT_EQ(code_of([&] { optimizer.step(); }), code);
      } else {
        if (intruder.valid()) intruder.wait();
        pass();
        EXPECT_TRUE(verify(NamedTensors{{"gradient", net->parameters()[1].grad()}}, context));
        EXPECT_TRUE(verify(NamedTensors{{"gradient", other->parameters()[1].grad()}}, context));
        optimizer.step();
      }
      second.step();
    }
    EXPECT_TRUE(verify(net, context));
    EXPECT_TRUE(verify(other, context));
  });
}

}  // namespace
}  // namespace hvd::final_gradients_test
