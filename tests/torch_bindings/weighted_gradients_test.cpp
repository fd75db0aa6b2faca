// Tests means over batches of different sizes: training equals that of one process with the ranks'
// batches in one.
#include <limits>

#include <gmock/gmock.h>

#include "own_compressor.hpp"
#include "training.hpp"

namespace hvd::weighted_gradients_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
using torch::optim::Optimizer;
using DistributedSGD = DistributedOptimizer<torch::optim::SGD>;
using ShardedSGD = ShardedOptimizer<torch::optim::SGD>;

const auto kSgd = torch::optim::SGDOptions(0.1).momentum(0.9);
constexpr int kSteps = 8;
constexpr double kTolerance = 1e-9;

torch::nn::Sequential make_double_net() {
  auto net = make_net(1);
  net->to(torch::kFloat64);
  return net;
}

torch::nn::Sequential make_normalized_net() {
  torch::nn::Sequential net(torch::nn::Linear(kFeatures, 8), torch::nn::BatchNorm1d(8),
                            torch::nn::Tanh(), torch::nn::Linear(8, kClasses));
  net->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  std::uint64_t seed = 1;
  for (auto& parameter : net->parameters()) parameter.copy_(normal(parameter.sizes(), ++seed, 0.5));
  return net;
}

/// Returns the rows of a step. Every fourth step has a short batch.
Batch all_rows(int step) {
  const std::int64_t rows = step % 4 == 3 ? 2 : kGlobalBatch;
  const Batch batch = global_batch(step);
  return {batch.inputs.narrow(0, 0, rows).to(torch::kFloat64),
          batch.targets.narrow(0, 0, rows).to(torch::kFloat64)};
}

/// Returns one of `size` parts of different sizes, which are the whole batch together. A part of a
/// short batch may be empty.
Batch part_of(const Batch& batch, int part, int size) {
  const std::int64_t rows = batch.inputs.size(0);
  const std::int64_t begin = rows * part * part / (size * size);
  const std::int64_t end = rows * (part + 1) * (part + 1) / (size * size);
  return {batch.inputs.slice(0, begin, end), batch.targets.slice(0, begin, end)};
}

using SetWeight = std::function<void(double)>;
const SetWeight kAlone = [](double) {};

void train(torch::nn::Sequential& net, Optimizer& optimizer, const SetWeight& set_weight, int rank,
           int size, int passes = 1) {
  for (int step = 0; step < kSteps; ++step) {
    const Batch mine = part_of(all_rows(step), (rank + step) % size, size);
    set_weight(static_cast<double>(mine.inputs.size(0)));
    optimizer.zero_grad(step % 2 == 0);
    for (int pass = 0; pass < passes; ++pass) loss_of(net, mine).backward();
    optimizer.step();
  }
}

class Weighted : public testing::TestWithParam<int> {
 protected:
  /// Trains on the ranks with `body`, which gets a net of each rank, and in one process.
  static void expect_equal_training(
      const std::function<void(Context&, torch::nn::Sequential&)>& body,
      torch::nn::Sequential (*make)() = make_double_net) {
    auto reference = make();
    const auto start = values_of(reference);
    torch::optim::SGD sgd(reference->parameters(), kSgd);
    train(reference, sgd, kAlone, 0, 1);
    Outcomes outcomes(GetParam());
    on_ranks(GetParam(), [&](Context& context) {
      auto net = make();
      body(context, net);
      outcomes.set(context.rank(), net);
    });
    outcomes.expect(values_of(reference), start, kTolerance);
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Weighted, testing::Values(1, 2, 3));

TEST_P(Weighted, UnequalBatchesEqualOneProcess) {
  const std::vector<DistributedOptimizerOptions> ways{
      {},
      {.backward_passes_per_step = 2, .average_accumulated = true},
      {.gradient_predivide_factor = 2},
      {.compressor = std::make_shared<Averages>()},
      {.num_groups = 2},
      {.wait_in_backward = false},
      {.memory = GradientMemory::copied_shared},
  };
  for (const DistributedOptimizerOptions& way : ways) {
    expect_equal_training([&way](Context& context, torch::nn::Sequential& net) {
      DistributedOptimizerOptions options = way;
      options.weighted = true;
      options.context = &context;
      DistributedSGD optimizer(net->named_parameters(), kSgd, options);
      train(
          net, optimizer, [&](double rows) { optimizer.set_weight(rows); }, context.rank(),
          context.size(), options.backward_passes_per_step);
    });
  }
}

TEST_P(Weighted, UnequalBatchesOfAParallelModelEqualOneProcess) {
  expect_equal_training([](Context& context, torch::nn::Sequential& net) {
    DistributedDataParallel parallel(net, {.weighted = true, .context = &context});
    torch::optim::SGD optimizer(net->parameters(), kSgd);
    train(
        net, optimizer, [&](double rows) { parallel.set_weight(rows); }, context.rank(),
        context.size());
  });
}

TEST_P(Weighted, UnequalBatchesOfAShardedOptimizerEqualOneProcess) {
  for (const int passes : {1, 2}) {
    expect_equal_training([passes](Context& context, torch::nn::Sequential& net) {
      ShardedSGD optimizer(net->named_parameters(), kSgd,
                           {.backward_passes_per_step = passes,
                            .average_accumulated = true,
                            .weighted = true,
                            .bucket_bytes = 300,
                            .context = &context});
      train(
          net, optimizer, [&](double rows) { optimizer.set_weight(rows); }, context.rank(),
          context.size(), passes);
    });
  }
}

// The ranks exchange gradients within the backward pass, before the optimizer weighs them.
TEST_P(Weighted, UnequalBatchesNormalizedTogetherEqualOneProcess) {
  for (const int passes : {1, 2}) {
    expect_equal_training(
        [passes](Context& context, torch::nn::Sequential& net) {
          auto synchronized = convert_sync_batch_norm(net, {.context = &context, .weighted = true});
          DistributedSGD optimizer(synchronized->named_parameters(), kSgd,
                                   {.backward_passes_per_step = passes,
                                    .average_accumulated = true,
                                    .weighted = true,
                                    .context = &context});
          train(
              synchronized, optimizer, [&](double rows) { optimizer.set_weight(rows); },
              context.rank(), context.size(), passes);
        },
        make_normalized_net);
  }
}

TEST_P(Weighted, TheLossOfAClosureIsTheMeanOfAllRows) {
  const int size = GetParam();
  auto reference = make_double_net();
  const double wanted = loss_of(reference, all_rows(0)).item<double>();
  on_ranks(size, [&](Context& context) {
    const Batch mine = part_of(all_rows(0), context.rank(), size);
    const auto expect_mean = [&](torch::nn::Sequential& net, auto& optimizer) {
      const torch::Tensor loss = optimizer.step([&] {
        optimizer.set_weight(static_cast<double>(mine.inputs.size(0)));
        torch::Tensor own = loss_of(net, mine);
        own.backward();
        return own;
      });
      EXPECT_NEAR(loss.item<double>(), wanted, kTolerance);
    };
    auto net = make_double_net();
    DistributedSGD optimizer(net->named_parameters(), kSgd,
                             {.weighted = true, .context = &context});
    expect_mean(net, optimizer);
    auto other = make_double_net();
    ShardedSGD sharded(other->named_parameters(), kSgd, {.weighted = true, .context = &context});
    expect_mean(other, sharded);
  });
}

TEST_P(Weighted, SparseGradientsAndThoseOfNoRows) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    torch::nn::Linear layer(2, 1);
    table->to(torch::kFloat64);
    layer->to(torch::kFloat64);
    DistributedSGD optimizer(NamedTensors::joined({{"table", *table}, {"layer", *layer}}),
                             torch::optim::SGDOptions(1), {.weighted = true, .context = &context});
    const torch::Tensor before = table->weight.detach().clone();
    const torch::Tensor bias = layer->bias.detach().clone();
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      // In the second step the last rank has no rows, and its gradients are not numbers.
      const bool none = step == 1 && size > 1 && context.rank() + 1 == size;
      optimizer.set_weight(none ? 0 : context.rank() + 1);
      const double factor = none ? std::numeric_limits<double>::quiet_NaN() : context.rank();
      ((table(torch::tensor({std::int64_t{1}})) + layer->bias) * factor).sum().backward();
      optimizer.step();
    }
    double moved = 0;
    for (const int ranks : {size, std::max(size - 1, 1)}) {
      double sum = 0;
      double weights = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        sum += (rank + 1.0) * rank;
        weights += rank + 1;
      }
      moved += sum / weights;
    }
    torch::Tensor wanted = before.clone();
    wanted[1] -= moved;
    EXPECT_LT((table->weight.detach() - wanted).abs().max().item<double>(), kTolerance);
    EXPECT_NEAR((bias - layer->bias.detach()).item<double>(), 2 * moved, kTolerance);
  });
}

TEST_P(Weighted, LargeWeightsDoNotOverflowHalfPrecision) {
  on_ranks(GetParam(), [](Context& context) {
    // The sum of two gradients, and every gradient times its weight, is beyond the greatest f16.
    constexpr double kGradient = 60000;
    const auto check = [&](auto&& optimizer, const torch::Tensor& parameter) {
      optimizer.set_weight(1e6 * (context.rank() + 1));
      (parameter.to(torch::kFloat64) * kGradient).sum().backward();
      optimizer.step();
      const torch::Tensor wrong = parameter.detach().to(torch::kFloat64) / -kGradient - 1;
      EXPECT_LT(wrong.abs().max().item<double>(), 2e-3) << parameter;
    };
    const auto rate = torch::optim::SGDOptions(1);
    for (const bool sharded : {false, true}) {
      const torch::Tensor half = torch::zeros({3}, torch::kFloat16).requires_grad_();
      const NamedTensors named{{"half", half}};
      if (sharded) {
        check(ShardedSGD(named, rate, {.weighted = true, .context = &context}), half);
      } else {
        check(DistributedSGD(named, rate, {.weighted = true, .context = &context}), half);
      }
    }
  });
}

// Rank r has r + 1 batches. The sums of the weights, and so the means, are those of the ranks that
// still have data.
TEST_P(Weighted, RanksThatHaveJoinedHaveNoWeight) {
  const int size = GetParam();
  Outcomes outcomes(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_double_net();
    DistributedSGD optimizer(net->named_parameters(), kSgd,
                             {.weighted = true, .context = &context});
    for (int step = 0; step <= context.rank(); ++step) {
      const Batch mine = part_of(all_rows(step), context.rank(), size);
      optimizer.zero_grad();
      optimizer.set_weight(static_cast<double>(mine.inputs.size(0)));
      loss_of(net, mine).backward();
      optimizer.step();
    }
    broadcast_parameters(net, join({.context = &context}), context);
    outcomes.set(context.rank(), net);
  });
  auto reference = make_double_net();
  const auto start = values_of(reference);
  torch::optim::SGD sgd(reference->parameters(), kSgd);
  for (int step = 0; step < size; ++step) {
    // The ranks from `step` on have the last rows.
    std::int64_t rows = 0;
    for (int rank = step; rank < size; ++rank) {
      rows += part_of(all_rows(step), rank, size).inputs.size(0);
    }
    const Batch all = all_rows(step);
    sgd.zero_grad();
    loss_of(reference, {all.inputs.slice(0, -rows), all.targets.slice(0, -rows)}).backward();
    sgd.step();
  }
  outcomes.expect(values_of(reference), start, kTolerance);
}

TEST_P(Weighted, ARankWithoutAPassTakesPartInStep) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    torch::nn::Linear layer(3, 1);
    DistributedSGD optimizer(*layer, torch::optim::SGDOptions(0),
                             {.weighted = true, .context = &context});
    for (int step = 0; step < 6; ++step) {
      const bool idle = size > 1 && context.rank() == step % size;
      const int passes = 1 + step % 2;  // of which the last uses nothing on the idle rank
      optimizer.zero_grad();
      for (int pass = 1; pass <= passes; ++pass) {
        const bool uses_none = idle && pass == passes;
        optimizer.set_weight(uses_none ? 0 : 5);
        if (!uses_none) (layer->weight * 2).sum().backward();
      }
      optimizer.step();
      EXPECT_NEAR(layer->weight.grad()[0][0].item<double>(), 2 * passes, 1e-6);
    }
  });
}

TEST_P(Weighted, MisuseIsNamedOnAllRanksAndTrainingGoesOn) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    auto net = make_double_net();
    const auto named = net->named_parameters();
    std::string message;
    const auto refuses = [&](const std::function<void()>& call, const char* what,
                             Errc code = Errc::invalid_argument) {
      EXPECT_EQ(code_of(call, &message), code);
      EXPECT_THAT(message, HasSubstr(what));
    };
    refuses(
        [&] {
          DistributedSGD bad(named, kSgd,
                             {.op = ReduceOp::sum, .weighted = true, .context = &context});
        },
        "DistributedOptimizer: weighted needs the op average");
    refuses(
        [&] {
          ShardedSGD bad(named, kSgd, {.op = ReduceOp::sum, .weighted = true, .context = &context});
        },
        "ShardedOptimizer: weighted needs the op average");
    refuses(
        [&] {
          DistributedSGD bad(named, kSgd, {.weighted = true, .adasum = true, .context = &context});
        },
        "weighted and adasum exclude each other");
    {
      DistributedDataParallel plain(net, {.context = &context});
      refuses([&] { plain.set_weight(1); },
              "DistributedDataParallel: set_weight() needs the option weighted");
    }
    const auto check = [&](auto&& optimizer) {
      const auto before = context.stats().submitted;
      for (const double bad : {-1.0, std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()}) {
        refuses([&] { optimizer.set_weight(bad); }, "finite and not negative");
      }
      EXPECT_EQ(context.stats().submitted, before);
      const auto train = [&] {
        loss_of(net, part_of(all_rows(0), context.rank(), size)).backward();
        optimizer.step();
      };
      const auto good = [&] {
        optimizer.zero_grad();
        optimizer.set_weight(1);
        refuses([&] { optimizer.set_weight(1); }, "set_weight() was called twice");
        train();
        EXPECT_TRUE(verify(*net, context));
      };
      const auto fails = [&](const char* what, Errc code = Errc::invalid_argument) {
        refuses(train, what, code);
        static_cast<void>(code_of([&] { optimizer.step(); }));  // the error once more
      };
      good();
      fails("needs a call of set_weight() before each backward pass");
      good();
      if (context.rank() > 0) optimizer.set_weight(1);
      if (context.rank() == 0) {
        fails("needs a call of set_weight()");
      } else {
        fails("another rank has not called set_weight()", Errc::mismatch);
      }
      good();
      optimizer.set_weight(0);
      fails("the weights of all ranks add up to 0, so there is no mean");
      good();
    };
    check(DistributedSGD(named, kSgd, {.weighted = true, .context = &context}));
    check(ShardedSGD(named, kSgd, {.weighted = true, .context = &context}));
  });
}

// Rank 0 also makes no backward pass, from the first step on.
TEST_P(Weighted, ARankWithoutAPassAndAWeightIsNamed) {
  const int size = GetParam();
  if (size == 1) return;  // there is nobody to wait for it
  on_ranks(size, [&](Context& context) {
    const auto check = [&](auto make) {
      auto net = make_double_net();
      auto optimizer = make(net);
      for (int step = 0; step < 2; ++step) {
        optimizer.zero_grad();
        const auto train = [&] {
          if (context.rank() > 0) {
            optimizer.set_weight(1);
            loss_of(net, part_of(all_rows(0), context.rank(), size)).backward();
          }
          optimizer.step();
        };
        EXPECT_EQ(code_of(train), context.rank() == 0 ? Errc::invalid_argument : Errc::mismatch);
      }
    };
    check([&](torch::nn::Sequential& net) {
      return DistributedSGD(net->named_parameters(), kSgd, {.weighted = true, .context = &context});
    });
    check([&](torch::nn::Sequential& net) {
      return ShardedSGD(net->named_parameters(), kSgd, {.weighted = true, .context = &context});
    });
  });
}

}  // namespace
}  // namespace hvd::weighted_gradients_test
