// Tests the options of DistributedOptimizer: however gradients travel, ranks end with the result of
// one process.
#include <gmock/gmock.h>

#include "kinds.hpp"
#include "own_compressor.hpp"
#include "training.hpp"

namespace hvd::optimizer_options_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
using DistributedSGD = DistributedOptimizer<torch::optim::SGD>;

const auto kSgd = torch::optim::SGDOptions(0.1).momentum(0.9);
constexpr int kSteps = 8;
// The tolerance for half precision, as a share of the distance that training moved.
constexpr double kHalfPrecision = 0.0099;

struct Variant {
  std::string name;
  DistributedOptimizerOptions options;
  double tolerance = 1e-5;
  bool scaled = false;  ///< the loss, by a GradScaler

  friend void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }
};

std::vector<Variant> variants() {
  return {
      {"Fp16", {.compression = Compression::fp16}, kHalfPrecision},
      {"Scaled", {}, 1e-5, true},
      {"ScaledInFp16", {.compression = Compression::fp16}, kHalfPrecision, true},
      {"ScaledAndAccumulated",
       {.backward_passes_per_step = 2, .average_accumulated = true, .num_groups = 2},
       1e-5,
       true},
      {"OwnCompressor", {.compressor = std::make_shared<Averages>()}},
      {"Accumulated", {.backward_passes_per_step = 2, .average_accumulated = true}},
      {"GroupLists", {.groups = {{"2.bias", "0.weight"}, {"0.bias"}}}},
      {"GroupCount", {.num_groups = 3}},
      {"Predivided", {.gradient_predivide_factor = 2.0}},
      {"CopiedAndGrouped", {.num_groups = 1, .memory = GradientMemory::copied_shared}},
  };
}

using Case = std::tuple<Kind, Variant, int>;
class OptimizerOptions : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, OptimizerOptions,
                         testing::Combine(testing::ValuesIn(kinds()), testing::ValuesIn(variants()),
                                          testing::Values(2, 3, 4)),
                         [](const auto& suite) {
                           return std::get<0>(suite.param).name + std::get<1>(suite.param).name +
                                  "At" + std::to_string(std::get<2>(suite.param));
                         });

/// Trains with as many backward passes per step as the options say, on equal parts of the batch.
void train(torch::nn::Sequential& net, Optimizer& optimizer, int rank, int size, int passes,
           bool scaled = false) {
  GradScaler scaler({.init_scale = 256, .growth_interval = 3});
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad(step % 2 == 0);
    const Batch mine = global_batch(step).of_rank(rank, size);
    const std::int64_t part = mine.inputs.size(0) / passes;
    for (int pass = 0; pass < passes; ++pass) {
      const torch::Tensor loss = loss_of(net, {mine.inputs.narrow(0, pass * part, part),
                                               mine.targets.narrow(0, pass * part, part)});
      (scaled ? scaler.scale(loss) : loss).backward();
    }
    if (scaled) {
      EXPECT_TRUE(scaler.step(optimizer));  // which it knows as an Optimizer only
      scaler.update();
    } else {
      optimizer.step();
    }
  }
}

TEST_P(OptimizerOptions, EqualsOneProcess) {
  const auto& [kind, variant, size] = GetParam();
  auto reference = make_net(1);
  const std::vector<torch::Tensor> start = values_of(reference);
  const auto alone = kind.make(reference->parameters());
  train(reference, *alone, 0, 1, 1);
  const std::vector<torch::Tensor> wanted = values_of(reference);
  const double moved = largest_difference(wanted, start);

  Outcomes outcomes(size);
  on_ranks(size, [&, &kind = kind, &variant = variant, size = size](Context& context) {
    auto net = make_net(1 + 10 * static_cast<std::uint64_t>(context.rank()));
    DistributedOptimizerOptions options = variant.options;
    options.context = &context;
    const auto optimizer = kind.derive(net->named_parameters(), options);
    train(net, *optimizer, context.rank(), size, options.backward_passes_per_step, variant.scaled);
    outcomes.set(context.rank(), net);
  });
  outcomes.expect(wanted, start,
                  variant.tolerance == kHalfPrecision ? kHalfPrecision * moved : variant.tolerance);
}

class OptimizerInBf16 : public testing::TestWithParam<std::tuple<Kind, int>> {};
INSTANTIATE_TEST_SUITE_P(All, OptimizerInBf16,
                         testing::Combine(testing::ValuesIn(kinds()), testing::Values(2, 3, 4)),
                         [](const auto& suite) {
                           return std::get<0>(suite.param).name + "At" +
                                  std::to_string(std::get<1>(suite.param));
                         });

// With eight bits training does not end where exact gradients lead, since Adam's steps may change
// their sign. One process that rounds like the ranks ends at the same point.
TEST_P(OptimizerInBf16, EqualsOneProcessThatRoundsAlike) {
  const auto& [kind, size] = GetParam();
  auto reference = make_net(1);
  const std::vector<torch::Tensor> start = values_of(reference);
  const auto alone = kind.make(reference->parameters());
  for (int step = 0; step < kSteps; ++step) {
    backward_through_bf16(reference, step, size);
    alone->step();
  }
  Outcomes outcomes(size);
  on_ranks(size, [&, &kind = kind, size = size](Context& context) {
    auto net = make_net(1 + 10 * static_cast<std::uint64_t>(context.rank()));
    const auto optimizer = kind.derive(net->named_parameters(),
                                       {.compression = Compression::bf16, .context = &context});
    train(net, *optimizer, context.rank(), size, 1);
    outcomes.set(context.rank(), net);
  });
  outcomes.expect(values_of(reference), start, 1e-4);
}

class OptimizerOption : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OptimizerOption, testing::Values(1, 2, 3, 4));

TEST_P(OptimizerOption, GroupsTravelTogether) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), kSgd,
                             {.groups = {{"0.weight", "2.weight", "2.bias"}},
                              .wait_in_backward = false,
                              .context = &context});
    const auto before = context.stats().submitted;
    // Half of the group has no gradient yet.
    net->parameters()[3].sum().backward();
    EXPECT_EQ(context.stats().submitted, before);
    (net->parameters()[0].sum() + net->parameters()[2].sum()).backward();
    EXPECT_EQ(context.stats().submitted, before + 3);
    optimizer.step();
    EXPECT_EQ(context.stats().submitted, before + 4 + small_messages(context.size(), 0))
        << "0.bias, which nobody used";
  });
}

TEST_P(OptimizerOption, AGroupWithFrozenMembersStillTravels) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    net->parameters()[0].set_requires_grad(false);
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.num_groups = 1, .context = &context});
    for (int step = 0; step < 4; ++step) {
      if (step == 2) net->parameters()[0].set_requires_grad(true);
      if (step == 3) net->parameters()[3].set_requires_grad(false);
      optimizer.zero_grad();
      loss_of(net, global_batch(step).of_rank(context.rank(), context.size())).backward();
      optimizer.step();
    }
    EXPECT_TRUE(verify(net, context));
  });
}

TEST_P(OptimizerOption, SparseGradientsAreMadeDense) {
  on_ranks(GetParam(), [](Context& context) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 4).sparse(true));
    DistributedSGD optimizer(table->named_parameters(), torch::optim::SGDOptions(1),
                             {.op = ReduceOp::sum, .sparse_as_dense = true, .context = &context});
    const torch::Tensor before = table->weight.detach().clone();
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      table(torch::tensor({std::int64_t{context.rank()}})).sum().backward();
      optimizer.step();
    }
    torch::Tensor wanted = before.clone();
    wanted.narrow(0, 0, context.size()) -= 2;
    EXPECT_LT((table->weight.detach() - wanted).abs().max().item<double>(), 1e-5);
  });
}

TEST_P(OptimizerOption, SparseGradientsAreGathered) {
  on_ranks(GetParam(), [](Context& context) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 4).sparse(true));
    DistributedSGD optimizer(table->named_parameters(), torch::optim::SGDOptions(1),
                             {.op = ReduceOp::sum, .context = &context});
    const torch::Tensor before = table->weight.detach().clone();
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      // In the second step only rank 0 has a gradient.
      if (step != 1 || context.rank() == 0) {
        table(torch::tensor({std::int64_t{context.rank()}})).sum().backward();
      }
      optimizer.step();
      EXPECT_TRUE(table->weight.grad().is_sparse());
    }
    torch::Tensor wanted = before.clone();
    wanted.narrow(0, 0, context.size()) -= 2;
    wanted[0] -= 1;
    EXPECT_LT((table->weight.detach() - wanted).abs().max().item<double>(), 1e-5);
    EXPECT_TRUE(verify(*table, context));
  });
}

TEST_P(OptimizerOption, ASparseGradientThatOneRankHasInTheFirstStepIsKnownToAll) {
  on_ranks(GetParam(), [](Context& context) {
    for (const bool dense : {false, true}) {
      torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 4).sparse(true));
      DistributedSGD optimizer(
          table->named_parameters(), torch::optim::SGDOptions(1),
          {.op = ReduceOp::sum, .sparse_as_dense = dense, .context = &context});
      const torch::Tensor before = table->weight.detach().clone();
      const int last = context.size() - 1;
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        if (step > 0 || context.rank() == last) {
          table(torch::tensor({std::int64_t{context.rank()}})).sum().backward();
        }
        optimizer.step();
        EXPECT_EQ(table->weight.grad().is_sparse(), !dense);
      }
      torch::Tensor wanted = before.clone();
      wanted.narrow(0, 0, context.size()) -= 2;
      wanted[last] -= 1;
      EXPECT_LT((table->weight.detach() - wanted).abs().max().item<double>(), 1e-5);
      EXPECT_TRUE(verify(*table, context));
    }
  });
}

/// An embedding with sparse gradients before a layer.
struct Lookup : torch::nn::Module {
  explicit Lookup(const torch::Tensor& rows) {
    const torch::NoGradGuard no_grad;
    table->weight.copy_(rows);
    layer->weight.copy_(rows.slice(0, 0, 1));
    layer->bias.fill_(1);
  }
  torch::Tensor loss(int rank, bool uses_table) {
    const torch::Tensor inputs = uses_table ? table->forward(torch::tensor({std::int64_t{rank}}))
                                            : torch::full({1, 4}, rank + 1.0F);
    return layer->forward(inputs).square().sum();
  }
  torch::nn::Embedding table = register_module(
      "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 4).sparse(true)));
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(4, 1));
};

/// Trains the model in one process with the losses of all ranks.
template <class UsesTable>
void train_alone(Lookup& model, int size, int steps, const UsesTable& uses_table) {
  torch::optim::SGD sgd(model.parameters(), torch::optim::SGDOptions(0.1));
  for (int step = 0; step < steps; ++step) {
    sgd.zero_grad();
    for (int rank = 0; rank < size; ++rank) {
      (model.loss(rank, uses_table(rank, step)) / size).backward();
    }
    sgd.step();
  }
}

TEST_P(OptimizerOption, SparseGradientsInAGroupAreReducedBesideIt) {
  const int size = GetParam();
  const torch::Tensor rows = normal({5, 4}, 3, 0.3);
  // In the first step only the last rank has a sparse gradient.
  const auto uses_table = [size](int rank, int step) { return step > 0 || rank == size - 1; };
  Lookup alone(rows);
  train_alone(alone, size, 3, uses_table);
  const std::vector<std::vector<std::string>> with_others{
      {"layer.bias", "table.weight", "layer.weight"}};
  const std::vector<std::vector<std::string>> by_itself{{"table.weight"}, {"layer.weight"}};
  for (const auto& groups : {with_others, by_itself}) {
    on_ranks(size, [&](Context& context) {
      Lookup model(rows);
      DistributedSGD optimizer(model.named_parameters(), torch::optim::SGDOptions(0.1),
                               {.groups = groups, .context = &context});
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        model.loss(context.rank(), uses_table(context.rank(), step)).backward();
        optimizer.step();
      }
      EXPECT_TRUE(verify(model, context));
      for (const auto& item : model.named_parameters()) {
        const torch::Tensor wanted = alone.named_parameters()[item.key()];
        EXPECT_TRUE(torch::allclose(item.value(), wanted, 1e-4, 1e-5)) << item.key();
      }
    });
  }
}

// First no rank uses the table, which may be frozen. Then only the last rank does, and later only
// the first.
TEST_P(OptimizerOption, ASparseGradientThatNoRankHadBeforeIsKnownToAll) {
  const int size = GetParam();
  const torch::Tensor rows = normal({5, 4}, 3, 0.3);
  constexpr int kUnused = 3;
  const auto uses_table = [size](int rank, int step) {
    return (step == kUnused && rank == size - 1) || (step == kUnused + 1 && rank == 0);
  };
  Lookup alone(rows);
  train_alone(alone, size, kUnused + 3, uses_table);
  for (const bool is_frozen_first : {false, true}) {
    for (const int groups : {0, 1}) {
      on_ranks(size, [&](Context& context) {
        Lookup model(rows);
        model.table->weight.set_requires_grad(!is_frozen_first);
        DistributedSGD optimizer(model.named_parameters(), torch::optim::SGDOptions(0.1),
                                 {.num_groups = groups, .context = &context});
        for (int step = 0; step < kUnused + 3; ++step) {
          if (step == kUnused) model.table->weight.set_requires_grad(true);
          optimizer.zero_grad();
          model.loss(context.rank(), uses_table(context.rank(), step)).backward();
          const torch::Tensor& gradient = model.table->weight.grad();
          const bool is_used = step == kUnused || step == kUnused + 1;
          EXPECT_EQ(gradient.defined() && gradient.is_sparse(), is_used) << "in step " << step;
          optimizer.step();
        }
        EXPECT_TRUE(verify(model, context));
        for (const auto& item : model.named_parameters()) {
          const torch::Tensor wanted = alone.named_parameters()[item.key()];
          EXPECT_TRUE(torch::allclose(item.value(), wanted, 1e-4, 1e-5)) << item.key();
        }
      });
    }
  }
}

TEST_P(OptimizerOption, FewerPassesThanPlannedAreAveragedOverThoseThatThereWere) {
  const int size = GetParam();
  auto reference = make_net(1);
  torch::optim::SGD sgd(reference->parameters(), kSgd);
  train(reference, sgd, 0, 1, 1);
  auto start = make_net(1);
  Outcomes outcomes(size);
  Outcomes sharded(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    auto other = make_net(1);
    DistributedSGD optimizer(
        net->named_parameters(), kSgd,
        {.backward_passes_per_step = 3, .average_accumulated = true, .context = &context});
    ShardedOptimizer<torch::optim::SGD> shards(other->named_parameters(), kSgd,
                                               {.backward_passes_per_step = 3,
                                                .average_accumulated = true,
                                                .bucket_bytes = 150,
                                                .context = &context});
    // Ranks may make different numbers of passes: 1 or 2 of 3.
    const int passes = 1 + context.rank() % 2;
    train(net, optimizer, context.rank(), size, passes);
    train(other, shards, context.rank(), size, passes);
    outcomes.set(context.rank(), net);
    sharded.set(context.rank(), other);
  });
  outcomes.expect(values_of(reference), values_of(start));
  sharded.expect(values_of(reference), values_of(start));
}

TEST_P(OptimizerOption, ParametersOfSeveralTypesAreReducedInTheirOwn) {
  on_ranks(GetParam(), [](Context& context) {
    const double mean = (context.size() + 1) / 2.0;
    const auto check = [&](const auto& construct, const char* what) {
      std::vector<NamedTensors::Item> items;
      for (const auto type :
           {torch::kFloat64, torch::kFloat32, torch::kBFloat16, torch::kFloat16, torch::kFloat32}) {
        items.emplace_back(std::to_string(items.size()),
                           torch::full({2, 3}, 20.0, type).requires_grad_());
      }
      const auto optimizer = construct(NamedTensors(items));
      for (int step = 0; step < 2; ++step) {
        optimizer->zero_grad();
        torch::Tensor loss = torch::zeros({}, torch::kFloat64);
        for (const NamedTensors::Item& item : items) {
          loss = loss + (item.second * (context.rank() + 1)).sum().to(torch::kFloat64);
        }
        loss.backward();
        optimizer->step();
      }
      for (const NamedTensors::Item& item : items) {
        const torch::Tensor& moved = item.second;
        EXPECT_TRUE(moved.eq(20 - 2 * mean).all().item<bool>()) << what << ' ' << moved;
      }
    };
    const auto rate = torch::optim::SGDOptions(1);
    const std::vector<DistributedOptimizerOptions> ways{
        {}, {.compression = Compression::bf16}, {.num_groups = 2}};
    for (DistributedOptimizerOptions options : ways) {
      options.context = &context;
      check(
          [&](const NamedTensors& named) {
            return std::make_unique<DistributedSGD>(named, rate, options);
          },
          "distributed");
    }
    for (const auto compression : {Compression::none, Compression::bf16}) {
      check(
          [&](const NamedTensors& named) {
            return std::make_unique<ShardedOptimizer<torch::optim::SGD>>(
                named, rate,
                ShardedOptimizerOptions{.compression = compression, .context = &context});
          },
          "sharded");
    }
  });
}

TEST_P(OptimizerOption, AllOfTheElementsAreTheTopK) {
  const int size = GetParam();
  auto reference = make_net(1);
  torch::optim::SGD sgd(reference->parameters(), kSgd);
  train(reference, sgd, 0, 1, 1);
  Outcomes outcomes(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), kSgd,
                             {.compressor = top_k(1.0, 0), .context = &context});
    train(net, optimizer, context.rank(), size, 1);
    outcomes.set(context.rank(), net);
  });
  auto start = make_net(1);
  outcomes.expect(values_of(reference), values_of(start));
}

/// Fits the data of all ranks and returns the last loss over all data.
double fit(Context& context, torch::nn::Sequential& net, const DistributedOptimizerOptions& how) {
  DistributedOptimizerOptions options = how;
  options.context = &context;
  DistributedSGD optimizer(net->named_parameters(), torch::optim::SGDOptions(0.1), options);
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    loss_of(net, global_batch(0).of_rank(context.rank(), context.size())).backward();
    optimizer.step();
  }
  return loss_of(net, global_batch(0)).item<double>();
}

TEST_P(OptimizerOption, CompressorsLearnWithTheErrorFedBack) {
  on_ranks(GetParam(), [](Context& context) {
    auto plain = make_net(1);
    const double begin = loss_of(plain, global_batch(0)).item<double>();
    const double best = begin - fit(context, plain, {});
    ASSERT_GT(best, 0.1 * begin) << "nothing was learnt";
    for (const auto& compressor : {top_k(0.1, 0), power_sgd(1)}) {
      auto net = make_net(1);
      const double learnt = begin - fit(context, net, {.compressor = compressor});
      EXPECT_GT(learnt, 0.8 * best) << compressor->description();
      EXPECT_TRUE(verify(*net, context)) << compressor->description();
    }
  });
}

TEST_P(OptimizerOption, AMatrixOfLowRankSurvivesPowerSgd) {
  on_ranks(GetParam(), [](Context& context) {
    torch::nn::Linear layer(torch::nn::LinearOptions(20, 30).bias(false));
    DistributedSGD optimizer(
        layer->named_parameters(), torch::optim::SGDOptions(1),
        {.op = ReduceOp::sum, .compressor = power_sgd(1), .context = &context});
    const torch::Tensor before = layer->weight.detach().clone();
    const torch::Tensor input = normal({1, 20}, 5);
    ((context.rank() + 1) * layer(input)).sum().backward();
    optimizer.step();
    const double sum = context.size() * (context.size() + 1) / 2.0;
    const torch::Tensor wanted = before - sum * input.expand({30, 20});
    EXPECT_LT((layer->weight.detach() - wanted).abs().max().item<double>(), 1e-3);
  });
}

TEST_P(OptimizerOption, StepsThatAgreeAreAveragedByAdasum) {
  const int size = GetParam();
  auto reference = make_net(1);
  torch::optim::SGD sgd(reference->parameters(), kSgd);
  train(reference, sgd, 0, 1, 1);
  Outcomes outcomes(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1 + 10 * static_cast<std::uint64_t>(context.rank()));
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.adasum = true, .context = &context});
    train(net, optimizer, 0, 1, 1);  // all ranks have the whole batch
    outcomes.set(context.rank(), net);
  });
  auto start = make_net(1);
  outcomes.expect(values_of(reference), values_of(start), 1e-4);
}

/// Computes Adasum of whole tensors in one process.
torch::Tensor adasum_of(std::vector<torch::Tensor> all) {
  while (all.size() > 1) {
    std::vector<torch::Tensor> next;
    for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
      const torch::Tensor& a = all[i];
      const torch::Tensor& b = all[i + 1];
      const torch::Tensor dot = (a * b).sum();
      next.push_back((1 - dot / (2 * a.square().sum())) * a +
                     (1 - dot / (2 * b.square().sum())) * b);
    }
    if (all.size() % 2 == 1) next.push_back(all.back());
    all = next;
  }
  return all.front();
}

TEST_P(OptimizerOption, StepsOnDifferentDataAreCombinedByAdasum) {
  const int size = GetParam();
  std::vector<torch::nn::Sequential> nets;
  std::vector<std::unique_ptr<torch::optim::SGD>> optimizers;
  for (int rank = 0; rank < size; ++rank) {
    nets.push_back(make_net(1));
    optimizers.push_back(std::make_unique<torch::optim::SGD>(nets.back()->parameters(), kSgd));
  }
  const auto start = values_of(nets[0]);
  for (int step = 0; step < kSteps; ++step) {
    const auto before = values_of(nets[0]);
    std::vector<std::vector<torch::Tensor>> moved(before.size());
    for (std::size_t rank = 0; rank < nets.size(); ++rank) {
      optimizers[rank]->zero_grad();
      loss_of(nets[rank], global_batch(step).of_rank(static_cast<int>(rank), size)).backward();
      optimizers[rank]->step();
      const auto after = values_of(nets[rank]);
      for (std::size_t i = 0; i < before.size(); ++i) moved[i].push_back(after[i] - before[i]);
    }
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const torch::Tensor together = before[i] + adasum_of(moved[i]);
      for (auto& net : nets) net->parameters()[i].copy_(together);
    }
  }
  Outcomes outcomes(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1 + 10 * static_cast<std::uint64_t>(context.rank()));
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.adasum = true, .context = &context});
    train(net, optimizer, context.rank(), size, 1);
    outcomes.set(context.rank(), net);
  });
  outcomes.expect(values_of(nets[0]), start, 1e-4);
}

TEST_P(OptimizerOption, WhenAdasumFailsTheParametersAreThoseBeforeTheStep) {
  on_ranks(GetParam(), [](Context& context) {
    if (context.size() == 1) return;  // there is nobody to disagree with
    auto net = make_net(1);
    net->parameters()[0].set_requires_grad(false);
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.adasum = true, .context = &context});
    const auto step = [&](int number) {
      optimizer.zero_grad();
      loss_of(net, global_batch(number).of_rank(context.rank(), context.size())).backward();
      optimizer.step();
    };
    step(0);
    const auto before = values_of(net);
    net->parameters()[0].set_requires_grad(context.rank() > 0);  // rank 0 does not train it
    EXPECT_EQ(code_of([&] { step(1); }), Errc::mismatch);
    EXPECT_EQ(largest_difference(values_of(net), before), 0);
    net->parameters()[0].set_requires_grad(true);
    step(2);
    EXPECT_GT(largest_difference(values_of(net), before), 0);
    EXPECT_TRUE(verify(net, context));
  });
}

// Momentum differs between ranks, and still changes a frozen parameter.
TEST_P(OptimizerOption, WithAdasumAParameterThatFreezesStaysTheSameOnAllRanks) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), torch::optim::SGDOptions(0.1).momentum(0.9),
                             {.adasum = true, .context = &context});
    for (int step = 0; step < 4; ++step) {
      net->parameters()[0].set_requires_grad(step < 2);
      optimizer.zero_grad(false);
      loss_of(net, global_batch(step).of_rank(context.rank(), context.size())).backward();
      optimizer.step();
    }
    EXPECT_TRUE(verify(net, context));
  });
}

TEST_P(OptimizerOption, AProcessSetAveragesAmongItsOwn) {
  const int size = GetParam();
  on_ranks(size, [size](Context& context) {
    // The last rank trains another model alone.
    std::vector<int> many;
    for (int rank = 0; rank + 1 < size; ++rank) many.push_back(rank);
    if (many.empty()) many.push_back(0);
    const ProcessSet first = context.add_process_set(many);
    const bool in_first = context.rank() <= many.back();
    auto net = make_net(1 + static_cast<std::uint64_t>(context.rank()));
    const torch::Tensor weight = net->parameters()[0];
    if (!in_first) return;
    DistributedSGD optimizer(net->named_parameters(), torch::optim::SGDOptions(1),
                             {.process_set = first.id, .context = &context});
    const torch::Tensor before = weight.detach().clone();
    (weight.sum() * (context.rank() + 1.0)).backward();
    optimizer.step();
    const double average = (static_cast<double>(many.size()) + 1) / 2;
    EXPECT_LT((before - weight.detach() - average).abs().max().item<double>(), 1e-5);
  });
}

TEST_P(OptimizerOption, BadOptionsAreNamedBeforeAnythingIsSent) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    const auto refuses = [&](DistributedOptimizerOptions options, const char* what) {
      options.context = &context;
      const auto before = context.stats().submitted;
      std::string message;
      const auto code = code_of(
          [&] { DistributedSGD optimizer(net->named_parameters(), kSgd, options); }, &message);
      EXPECT_EQ(code, Errc::invalid_argument);
      EXPECT_THAT(message, HasSubstr(what));
      EXPECT_EQ(context.stats().submitted, before);
    };
    refuses({.groups = {{"0.weight", "nobody"}}}, "nobody");
    refuses({.groups = {{"0.weight"}, {"0.weight"}}}, "0.weight twice");
    refuses({.num_groups = -1}, "num_groups is -1");
    refuses({.groups = {{"0.weight"}}, .num_groups = 1}, "two ways");
    refuses({.compression = Compression::fp16, .compressor = top_k(0.5)}, "exclude each other");
    EXPECT_EQ(code_of([] { static_cast<void>(top_k(0)); }), Errc::invalid_argument);
    EXPECT_EQ(code_of([] { static_cast<void>(power_sgd(0)); }), Errc::invalid_argument);
  });
}

}  // namespace
}  // namespace hvd::optimizer_options_test
