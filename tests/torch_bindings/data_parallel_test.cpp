// Tests DistributedDataParallel: trainers keep their own optimizers, and train as one process does.
#include <gmock/gmock.h>
#include <torch/script.h>

#include "own_compressor.hpp"
#include "training.hpp"

namespace hvd::data_parallel_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;

constexpr int kSteps = 6;
const auto kSgd = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01);

class DataParallel : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DataParallel, testing::Values(1, 2, 3));

using Optimizers = std::vector<std::unique_ptr<torch::optim::Optimizer>>;
/// Trains one step with this rank's part of the batch.
using Step = std::function<void(torch::nn::Sequential&, Optimizers&, const Batch&)>;

/// Trains in one process and on `size` ranks, and compares the parameters.
void expect_equal_training(int size, const std::function<Optimizers(torch::nn::Sequential&)>& make,
                           const Step& step) {
  auto reference = make_net(1);
  Optimizers own = make(reference);
  for (int i = 0; i < kSteps; ++i) step(reference, own, global_batch(i));
  Outcomes outcomes(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(context.rank() == 0 ? 1 : 7);  // the constructor makes them equal
    DistributedDataParallel parallel(net, {.context = &context});
    Optimizers optimizers = make(net);
    for (int i = 0; i < kSteps; ++i) {
      step(net, optimizers, global_batch(i).of_rank(context.rank(), size));
    }
    outcomes.set(context.rank(), net);
  });
  auto start = make_net(1);
  outcomes.expect(values_of(reference), values_of(start));
}

Optimizers one_sgd(torch::nn::Sequential& net) {
  Optimizers optimizers;
  optimizers.push_back(std::make_unique<torch::optim::SGD>(net->parameters(), kSgd));
  return optimizers;
}

TEST_P(DataParallel, ATrainerWithClippingAndASchedulerStaysAsItIs) {
  expect_equal_training(GetParam(), one_sgd,
                        [](torch::nn::Sequential& net, Optimizers& all, const Batch& batch) {
                          torch::optim::Optimizer& optimizer = *all[0];
                          torch::optim::StepLR scheduler(optimizer, 2, 0.5);
                          optimizer.zero_grad();
                          loss_of(net, batch).backward();
                          torch::nn::utils::clip_grad_norm_(net->parameters(), 0.5);
                          optimizer.step();
                          scheduler.step();
                        });
}

TEST_P(DataParallel, SeveralOptimizersAndLossesOfOneModel) {
  const auto make = [](torch::nn::Sequential& net) {
    const auto all = net->parameters();
    Optimizers optimizers;
    using Parameters = std::vector<torch::Tensor>;
    optimizers.push_back(std::make_unique<torch::optim::SGD>(Parameters{all[0], all[1]}, kSgd));
    optimizers.push_back(std::make_unique<torch::optim::Adam>(Parameters{all[2], all[3]}, 0.01));
    return optimizers;
  };
  expect_equal_training(GetParam(), make,
                        [](torch::nn::Sequential& net, Optimizers& all, const Batch& batch) {
                          for (auto& optimizer : all) optimizer->zero_grad(false);
                          loss_of(net, batch).backward();
                          net->parameters()[0].square().sum().backward();
                          all[0]->step();
                          net->zero_grad();
                          loss_of(net, batch).backward();
                          all[1]->step();
                        });
}

TEST_P(DataParallel, GradientsAddUpUnderNoSync) {
  const int size = GetParam();
  auto reference = make_net(1);
  torch::optim::SGD own(reference->parameters(), kSgd);
  const auto train = [](torch::nn::Sequential& net, torch::optim::Optimizer& optimizer,
                        DistributedDataParallel* parallel, int rank, int ranks) {
    for (int i = 0; i < kSteps; ++i) {
      optimizer.zero_grad();
      const auto pass = [&] { loss_of(net, global_batch(i).of_rank(rank, ranks)).backward(); };
      if (parallel) {
        const ScopedPause pause = parallel->no_sync();
        pass();
      } else {
        pass();
      }
      loss_of(net, global_batch(i + 1).of_rank(rank, ranks)).backward();
      optimizer.step();
    }
  };
  train(reference, own, nullptr, 0, 1);
  Outcomes outcomes(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    DistributedDataParallel parallel(*net, {.context = &context});
    torch::optim::SGD optimizer(net->parameters(), kSgd);
    train(net, optimizer, &parallel, context.rank(), size);
    outcomes.set(context.rank(), net);
  });
  auto start = make_net(1);
  outcomes.expect(values_of(reference), values_of(start));
}

// Each rank normalises other data, so its running means differ until they are broadcast.
TEST_P(DataParallel, BuffersAreThoseOfRankZeroAfterEachPass) {
  on_ranks(GetParam(), [&](Context& context) {
    for (const bool broadcast : {true, false}) {
      torch::nn::Sequential net(torch::nn::Linear(kFeatures, 4), torch::nn::BatchNorm1d(4));
      DistributedDataParallel parallel(net, {.broadcast_buffers = broadcast, .context = &context});
      for (int step = 0; step < 3; ++step) {
        const auto inputs = normal({8, kFeatures}, static_cast<std::uint64_t>(context.rank()) + 1);
        net->forward(inputs).square().sum().backward();
        EXPECT_EQ(static_cast<bool>(verify(net, context)), broadcast || context.size() == 1);
      }
    }
  });
}

// A discriminator has a loss for each of its two batches.
TEST_P(DataParallel, EachForwardPassThroughBatchNormMayHaveItsBackwardPass) {
  const int size = GetParam();
  const auto inputs = [](int rank, int pass) {
    return normal({8, kFeatures}, static_cast<std::uint64_t>(2 * rank + pass) + 1);
  };
  on_ranks(size, [&](Context& context) {
    torch::nn::Sequential net(torch::nn::Linear(kFeatures, 4), torch::nn::BatchNorm1d(4),
                              torch::nn::Linear(4, 1));
    DistributedDataParallel parallel(net, {.context = &context});
    torch::nn::Sequential alone(torch::nn::Linear(kFeatures, 4), torch::nn::BatchNorm1d(4),
                                torch::nn::Linear(4, 1));
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      alone->parameters()[i].set_data(net->parameters()[i].detach().clone());
    }
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const torch::Tensor first = net->forward(inputs(context.rank(), 0)).square().sum();
      const torch::Tensor second = net->forward(inputs(context.rank(), 1)).square().sum();
      first.backward();
      EXPECT_TRUE(verify(net, context));
      second.backward();
      EXPECT_TRUE(verify(net, context));
    }
    for (int rank = 0; rank < size; ++rank) {
      for (const int pass : {0, 1}) {
        (alone->forward(inputs(rank, pass)).square().sum() / size).backward();
      }
    }
    for (std::size_t i = 0; i < net->parameters().size(); ++i) {
      EXPECT_TRUE(
          torch::allclose(net->parameters()[i].grad(), alone->parameters()[i].grad(), 1e-4, 1e-5))
          << i;
    }
  });
}

TEST_P(DataParallel, ARankWhosePassUsesNothingSynchronizes) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    torch::nn::Linear layer(3, 1);
    DistributedDataParallel parallel(layer, {.context = &context});
    for (int step = 0; step < 4; ++step) {
      layer->zero_grad();
      if (context.rank() == step % size) layer->weight.sum().backward();
      parallel.synchronize();
      EXPECT_NEAR(layer->weight.grad()[0][0].item<double>(), 1.0 / size, 1e-6);
      EXPECT_FALSE(layer->bias.grad().defined());
    }
  });
}

// LibTorch makes new gradient accumulators then, which have none of the old ones' hooks.
TEST_P(DataParallel, AModuleMayMoveToAnotherDtype) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    torch::nn::Linear layer(3, 1);
    DistributedDataParallel parallel(layer, {.context = &context});
    for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kFloat64, torch::kFloat32}) {
      layer->to(dtype);
      layer->zero_grad();
      (layer->weight.sum() * (context.rank() + 1)).backward();
      EXPECT_EQ(layer->weight.grad().scalar_type(), dtype);
      EXPECT_NEAR(layer->weight.grad()[0][0].item<double>(), (size + 1) / 2.0, 1e-6);
    }
  });
}

// LibTorch destroys some hooks of a parameter when the program adds its first one.
TEST_P(DataParallel, AModuleWithHooksOfTheProgramMayMoveToAnotherDtype) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    for (const bool is_frozen_first : {false, true}) {
      torch::nn::Linear layer(3, 1);
      for (torch::Tensor& parameter : layer->parameters()) {
        parameter.set_requires_grad(!is_frozen_first);
      }
      DistributedDataParallel parallel(layer, {.context = &context});
      for (torch::Tensor& parameter : layer->parameters()) {
        parameter.set_requires_grad(true);
        parameter.register_hook([](const torch::Tensor& gradient) { return 2 * gradient; });
      }
      for (const auto dtype : {torch::kFloat64, torch::kFloat32}) {
        layer->to(dtype);
        layer->zero_grad();
        (layer->weight.sum() * (context.rank() + 1)).backward();
        EXPECT_NEAR(layer->weight.grad()[0][0].item<double>(), size + 1, 1e-6);
      }
    }
  });
}

TEST_P(DataParallel, ACompressedModuleMayMoveToAnotherDtype) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    for (const auto& compressor : {top_k(0.5, 0), power_sgd(1)}) {
      torch::nn::Linear layer(8, 8);
      DistributedDataParallel parallel(layer, {.compressor = compressor, .context = &context});
      for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kFloat32}) {
        layer->to(dtype);
        for (int pass = 0; pass < 2; ++pass) {
          layer->zero_grad();
          (layer->weight.sum() * (context.rank() + 1)).backward();
          EXPECT_EQ(layer->weight.grad().scalar_type(), dtype);
          EXPECT_TRUE(verify(*layer, context));
        }
      }
    }
  });
}

// The last rank has no rows in the pass that fails, nor in the next one.
TEST_P(DataParallel, AfterAFailedPassARankWithoutRowsSynchronizes) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    int pass = 0;
    const auto fails = [&pass] { return pass == 1; };
    torch::nn::Linear layer(3, 1);
    DistributedDataParallel parallel(
        layer, {.compressor = std::make_shared<Faulty>(fails), .context = &context});
    for (; pass < 4; ++pass) {
      const bool some_have_none = size > 1 && (pass == 1 || pass == 2);
      const bool has_rows = !some_have_none || context.rank() < size - 1;
      const auto train = [&] {
        layer->zero_grad();
        if (has_rows) layer->weight.sum().backward();
        parallel.synchronize();
      };
      if (fails()) {
        EXPECT_EQ(code_of(train), Errc::internal);
      } else {
        train();
        const double expected = some_have_none ? (size - 1.0) / size : 1;
        EXPECT_NEAR(layer->weight.grad()[0][0].item<double>(), expected, 1e-6);
      }
    }
  });
}

TEST_P(DataParallel, AfterMisuseOnOneRankTheNextPassIsRight) {
  on_ranks(GetParam(), [&](Context& context) {
    torch::nn::Linear layer(3, 1);
    DistributedDataParallel parallel(layer, {.context = &context});
    layer->weight.sum().backward();
    if (context.rank() == 0) {
      const ScopedPause pause = parallel.no_sync();
      EXPECT_EQ(code_of([&] { layer->weight.sum().backward(); }), Errc::invalid_argument);
    }
    layer->zero_grad();
    layer->weight.sum().backward();
    EXPECT_NEAR(layer->weight.grad()[0][0].item<double>(), 1, 1e-6);
  });
}

TEST_P(DataParallel, AParameterThatIsReplacedOrAddedIsRefused) {
  on_ranks(GetParam(), [&](Context& context) {
    torch::nn::Sequential net(torch::nn::Linear(3, 3));
    DistributedDataParallel parallel(net, {.context = &context});
    net->push_back(torch::nn::Linear(3, 1));
    std::string message;
    EXPECT_EQ(code_of(
                  [&] {
                    net->forward(torch::ones({2, 3})).sum().backward();
                  },
                  &message),
              Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("DistributedDataParallel: the module's parameters are not those "
                                   "of the constructor: 1.weight"));
  });
}

struct TwoParts : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& inputs) {
    return head->forward(body->forward(inputs));
  }
  torch::nn::Linear body = register_module("body", torch::nn::Linear(3, 3));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(3, 3));
};

void set_frozen(const torch::nn::Linear& part, bool is_frozen) {
  for (const torch::Tensor& parameter : part->parameters()) {
    parameter.set_requires_grad(!is_frozen);
  }
}

// The pass runs no hook.
TEST_P(DataParallel, AHeadThatIsReplacedOnAFrozenBodyIsRefused) {
  on_ranks(GetParam(), [&](Context& context) {
    TwoParts model;
    set_frozen(model.body, true);
    DistributedDataParallel parallel(model, {.context = &context});
    const auto pass = [&] { model.forward(torch::ones({2, 3})).sum().backward(); };
    pass();
    model.head = model.replace_module("head", torch::nn::Linear(3, 1));
    std::string message;
    EXPECT_EQ(code_of(pass, &message), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("head.weight was added, removed or replaced"));
  });
}

// A trainer does so that freezes the generator and the discriminator in turn.
TEST_P(DataParallel, ThePartThatThawsWhileTheOtherFreezesIsReduced) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    TwoParts model;
    set_frozen(model.head, true);
    DistributedDataParallel parallel(
        model, {.groups = {{"body.weight", "body.bias"}, {"head.weight", "head.bias"}},
                .context = &context});
    for (int step = 0; step < 6; ++step) {
      const bool trains_head = step % 2 == 0;
      set_frozen(model.body, trains_head);
      set_frozen(model.head, !trains_head);
      model.zero_grad();
      (model.forward(torch::ones({1, 3})).sum() * (context.rank() + 1)).backward();
      const torch::Tensor own = (trains_head ? model.head : model.body)->bias.grad().clone();
      EXPECT_TRUE(torch::equal(own, allreduce(own, {.context = &context}))) << "step " << step;
      const float mean_of_head = static_cast<float>(size + 1) / 2;
      EXPECT_TRUE(!trains_head || own[0].item<float>() == mean_of_head) << "step " << step;
    }
  });
}

TEST_P(DataParallel, AParameterThatIsRemovedIsRefused) {
  on_ranks(GetParam(), [&](Context& context) {
    torch::nn::Linear layer(3, 3);
    layer->register_module("unused", torch::nn::LayerNorm(torch::nn::LayerNormOptions({3})));
    DistributedDataParallel parallel(layer, {.context = &context});
    layer->unregister_module("unused");
    std::string message;
    EXPECT_EQ(code_of(
                  [&] {
                    layer->forward(torch::ones({2, 3})).sum().backward();
                  },
                  &message),
              Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("unused.weight was added, removed or replaced"));
  });
}

// Each rank's second pass meets the first pass of the other's next step.
TEST_P(DataParallel, UnequalNumbersOfPassesAreAnErrorOnAllRanks) {
  const int size = GetParam();
  if (size == 1) return;
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    DistributedDataParallel parallel(net, {.context = &context});
    torch::optim::SGD sgd(net->parameters(), kSgd);
    std::string message;
    const auto code = code_of(
        [&] {
          for (int step = 0; step < 3; ++step) {
            sgd.zero_grad();
            const int passes = context.rank() == 0 && step == 1 ? 2 : 1;
            for (int pass = 0; pass < passes; ++pass) {
              loss_of(net, global_batch(step).of_rank(context.rank(), size)).backward();
            }
            sgd.step();
          }
        },
        &message);
    EXPECT_EQ(code, Errc::mismatch);
    EXPECT_THAT(message, HasSubstr("DistributedDataParallel: rank(s) 0"));
    EXPECT_THAT(message, HasSubstr("called backward() or step() more often"));
  });
}

TEST_P(DataParallel, AClosureOnLossesOfItsOwnIsShownItsLine) {
  const int size = GetParam();
  if (size == 1) return;
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    DistributedDataParallel parallel(net, {.context = &context});
    torch::optim::LBFGS lbfgs(net->parameters(),
                              torch::optim::LBFGSOptions(1).line_search_fn("strong_wolfe"));
    const Batch batch = global_batch(0).of_rank(context.rank(), size);
    std::string message;
    const auto code = code_of(
        [&] {
          for (int step = 0; step < 20; ++step) {
            lbfgs.step([&] {
              lbfgs.zero_grad();
              torch::Tensor loss = loss_of(net, batch) * (1 + 9 * context.rank());
              loss.backward();
              return loss;
            });
          }
        },
        &message);
    EXPECT_EQ(code, Errc::mismatch);
    EXPECT_THAT(message, HasSubstr("let a closure return hvd::allreduce(loss)"));
  });
}

// The layer normalises by the mean of the rank's batch and keeps this mean in a buffer.
TEST_P(DataParallel, ATorchScriptModuleIsTakenAsItIs) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    torch::jit::Module layer("Layer");
    const auto start = torch::full({kFeatures}, context.rank() + 1.0).requires_grad_();
    layer.register_parameter("weight", start, /*is_buffer=*/false);
    layer.register_buffer("mean", torch::full({}, -1.0 - context.rank()));
    layer.define(R"(
      def forward(self, inputs):
        self.mean.copy_(inputs.mean())
        return (inputs - self.mean) @ self.weight
    )");
    EXPECT_EQ(static_cast<bool>(verify(layer, context)), size == 1);
    DistributedDataParallel parallel(layer, {.context = &context});
    EXPECT_TRUE(verify(layer, context));
    EXPECT_EQ(start[0].item<double>(), 1);
    EXPECT_EQ(layer.attr("mean").toTensor().item<double>(), -1);

    const Batch batch = global_batch(0);
    const auto inputs = batch.of_rank(context.rank(), size).inputs;
    layer.forward({inputs}).toTensor().mean().backward();
    EXPECT_TRUE(verify(layer, context));
    EXPECT_TRUE(verify(NamedTensors{{"gradient", start.grad()}}, context));
    const double first_mean = batch.of_rank(0, size).inputs.mean().item<double>();
    EXPECT_NEAR(layer.attr("mean").toTensor().item<double>(), first_mean, 1e-6);

    layer.attr("mean").toTensor().fill_(context.rank());
    const Verification same = verify(layer, context);
    EXPECT_EQ(same.first_difference.starts_with("buffer mean"), size > 1) << same.first_difference;
    broadcast_parameters(layer, size - 1, context);
    EXPECT_EQ(layer.attr("mean").toTensor().item<double>(), size - 1);

    layer.setattr("weight", torch::ones({kFeatures}).requires_grad_());
    EXPECT_EQ(code_of([&] { start.sum().backward(); }), Errc::invalid_argument);
  });
}

TEST_P(DataParallel, ModelsInAnotherOrderAreNoticedByTheConstructor) {
  const int size = GetParam();
  if (size == 1) return;
  on_ranks(size, [&](Context& context) {
    torch::nn::Linear narrow(3, 1);
    torch::nn::Linear wide(3, 2);
    const bool is_first = context.rank() == 0;
    std::string message;
    EXPECT_EQ(code_of(
                  [&] {
                    DistributedDataParallel parallel(is_first ? narrow : wide,
                                                     {.context = &context});
                  },
                  &message),
              Errc::mismatch);
    EXPECT_THAT(message, HasSubstr("DistributedDataParallel: not the same on all ranks"));
    EXPECT_THAT(message, HasSubstr("in the same order"));
  });
}

TEST_P(DataParallel, OtherOptionsOnOneRankAreNoticedByTheConstructor) {
  const int size = GetParam();
  if (size == 1) return;
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    const bool odd = context.rank() == size - 1;
    const auto expect_named = [&](const DistributedOptimizerOptions& options,
                                  const std::string& name) {
      std::string message;
      EXPECT_EQ(code_of([&] { DistributedDataParallel parallel(net, options); }, &message),
                Errc::mismatch);
      EXPECT_THAT(message, HasSubstr("option " + name + ": rank " + std::to_string(size - 1) +
                                     " differs from rank 0"));
    };
    expect_named({.broadcast_buffers = !odd, .context = &context}, "broadcast_buffers");
    expect_named({.broadcast_parameters = !odd, .context = &context}, "broadcast_parameters");
    expect_named({.compression = odd ? Compression::bf16 : Compression::none, .context = &context},
                 "compression");
  });
}

TEST_P(DataParallel, MisuseIsNamed) {
  on_ranks(GetParam(), [&](Context& context) {
    auto net = make_net(1);
    std::string message;
    EXPECT_EQ(
        code_of(
            [&] { DistributedDataParallel parallel(net, {.adasum = true, .context = &context}); },
            &message),
        Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("DistributedDataParallel: adasum needs DistributedOptimizer"));
    DistributedDataParallel parallel(net, {.context = &context});
    EXPECT_EQ(
        code_of([&] { DistributedDataParallel second(net, {.context = &context}); }, &message),
        Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("0.weight"));
  });
}

}  // namespace
}  // namespace hvd::data_parallel_test
