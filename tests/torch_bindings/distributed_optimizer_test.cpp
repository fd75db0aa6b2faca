// Ranks that each train on their part must end with the result of one process that trains on all
// data.
#include <optional>
#include <sstream>

#include <gmock/gmock.h>

#include "kinds.hpp"
#include "training.hpp"

namespace hvd::distributed_optimizer_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
using torch::optim::Optimizer;

constexpr int kSteps = 8;

void train(torch::nn::Sequential& net, Optimizer& optimizer, int rank, int size,
           const std::function<void()>& step, bool set_to_none = true) {
  for (int i = 0; i < kSteps; ++i) {
    optimizer.zero_grad(set_to_none);
    loss_of(net, global_batch(i).of_rank(rank, size)).backward();
    step();
  }
}

class DistributedOptimizerOf : public testing::TestWithParam<std::tuple<Kind, int>> {};
INSTANTIATE_TEST_SUITE_P(Kinds, DistributedOptimizerOf,
                         testing::Combine(testing::ValuesIn(kinds()), testing::Values(1, 2, 3, 4)),
                         [](const auto& suite) {
                           return std::get<0>(suite.param).name + "At" +
                                  std::to_string(std::get<1>(suite.param));
                         });

std::vector<torch::Tensor> alone(const Kind& kind) {
  auto net = make_net(1);
  const auto optimizer = kind.make(net->parameters());
  train(net, *optimizer, 0, 1, [&] { optimizer->step(); });
  return values_of(net);
}

TEST_P(DistributedOptimizerOf, WrappedEqualsOneProcess) {
  const auto& [kind, size] = GetParam();
  Outcomes outcomes(size);
  on_ranks(size, [&, &kind = kind, size = size](Context& context) {
    auto net = make_net(1 + 10 * static_cast<std::uint64_t>(context.rank()));
    const auto base = kind.make(net->parameters());
    const std::unique_ptr<Optimizer> optimizer = std::make_unique<DistributedOptimizer<>>(
        *base, *net, DistributedOptimizerOptions{.context = &context});
    // The gradients may be cleared through either of the two.
    Optimizer& clears = context.rank() == 0 ? *base : *optimizer;
    train(net, clears, context.rank(), size, [&] { optimizer->step(); });
    outcomes.set(context.rank(), net);
  });
  auto start = make_net(1);
  outcomes.expect(alone(kind), values_of(start));
}

TEST_P(DistributedOptimizerOf, DerivedEqualsOneProcessThroughTheBaseReference) {
  const auto& [kind, size] = GetParam();
  Outcomes outcomes(size);
  on_ranks(size, [&, &kind = kind, size = size](Context& context) {
    auto net = make_net(1 + 10 * static_cast<std::uint64_t>(context.rank()));
    const auto optimizer = kind.derive(net->named_parameters(), {.context = &context});
    train(
        net, *optimizer, context.rank(), size, [&] { optimizer->step(); }, false);
    outcomes.set(context.rank(), net);
  });
  auto start = make_net(1);
  outcomes.expect(alone(kind), values_of(start));
}

class Distributed : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Distributed, testing::Values(1, 2, 3, 4));

using DistributedSGD = DistributedOptimizer<torch::optim::SGD>;
const auto kSgd = torch::optim::SGDOptions(0.1).momentum(0.9);

// The line search uses losses too. They are averaged, because otherwise ranks would take different
// paths.
TEST_P(Distributed, LbfgsWithClosureEqualsOneProcess) {
  const int size = GetParam();
  struct Way {
    DistributedOptimizerOptions options;
    const char* line_search = "strong_wolfe";
    double tolerance = 1e-3;
  };
  const std::vector<Way> ways{
      {{}},
      {{.backward_passes_per_step = 2, .average_accumulated = true}},
      {{.num_groups = 2}},
      {{.compression = Compression::fp16}, "", 0.0099},  // of the way; its loss stays exact
  };
  for (const auto& [options, line_search, tolerance] : ways) {
    auto lbfgs_options = torch::optim::LBFGSOptions(0.5).max_iter(6);
    if (*line_search != 0) lbfgs_options.line_search_fn(line_search);
    const auto fit = [](torch::nn::Sequential& net, Optimizer& optimizer, int rank, int ranks,
                        int passes) {
      for (int i = 0; i < 2; ++i) {
        optimizer.step([&] {
          optimizer.zero_grad();
          const Batch mine = global_batch(0).of_rank(rank, ranks);
          const std::int64_t part = mine.inputs.size(0) / passes;
          torch::Tensor mean = torch::zeros({});
          for (int pass = 0; pass < passes; ++pass) {
            torch::Tensor loss = loss_of(net, {mine.inputs.narrow(0, pass * part, part),
                                               mine.targets.narrow(0, pass * part, part)});
            loss.backward();
            mean += loss.detach() / passes;
          }
          return mean;
        });
      }
    };
    auto reference = make_net(1);
    torch::optim::LBFGS lbfgs(reference->parameters(), lbfgs_options);
    fit(reference, lbfgs, 0, 1, 1);
    const auto wanted = values_of(reference);

    Outcomes outcomes(size);
    on_ranks(size, [&, &given = options](Context& context) {
      auto net = make_net(1);
      DistributedOptimizerOptions own = given;
      own.context = &context;
      DistributedOptimizer<torch::optim::LBFGS> optimizer(net->named_parameters(), lbfgs_options,
                                                          own);
      fit(net, optimizer, context.rank(), size, own.backward_passes_per_step);
      outcomes.set(context.rank(), net);
    });
    auto start = make_net(1);
    const auto begin = values_of(start);
    outcomes.expect(wanted, begin,
                    tolerance > 1e-3 ? tolerance * largest_difference(wanted, begin) : tolerance);
  }
}

TEST_P(Distributed, ClosureOfSgdReturnsTheAverageLoss) {
  const int size = GetParam();
  auto reference = make_net(1);
  const double wanted = loss_of(reference, global_batch(0)).item<double>();
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context});
    const torch::Tensor loss = optimizer.step([&] {
      torch::Tensor mine = loss_of(net, global_batch(0).of_rank(context.rank(), size));
      mine.backward();
      return mine;
    });
    EXPECT_NEAR(loss.item<double>(), wanted, 1e-5);
    EXPECT_TRUE(verify(net, context));
  });
}

TEST_P(Distributed, SchedulersAndParameterGroupsWork) {
  const int size = GetParam();
  const auto groups = [](torch::nn::Sequential& net) {
    std::vector<torch::optim::OptimizerParamGroup> two;
    const auto parameters = net->parameters();
    two.emplace_back(std::vector<torch::Tensor>(parameters.begin(), parameters.begin() + 2));
    two.emplace_back(std::vector<torch::Tensor>(parameters.begin() + 2, parameters.end()),
                     std::make_unique<torch::optim::SGDOptions>(0.01));
    return two;
  };
  const auto fit = [](torch::nn::Sequential& net, Optimizer& optimizer, int rank, int ranks) {
    torch::optim::StepLR scheduler(optimizer, 2, 0.5);
    train(net, optimizer, rank, ranks, [&] {
      optimizer.step();
      scheduler.step();
    });
  };
  auto reference = make_net(1);
  torch::optim::SGD sgd(groups(reference), kSgd);
  fit(reference, sgd, 0, 1);

  for (const bool wraps : {false, true}) {
    Outcomes outcomes(size);
    on_ranks(size, [&](Context& context) {
      auto net = make_net(1);
      std::optional<torch::optim::SGD> existing;
      std::unique_ptr<Optimizer> optimizer;
      const DistributedOptimizerOptions options{.context = &context};
      if (wraps) {
        existing.emplace(groups(net), kSgd);
        optimizer = std::make_unique<DistributedOptimizer<>>(*existing, *net, options);
      } else {
        optimizer = std::make_unique<DistributedSGD>(groups(net), *net, kSgd, options);
      }
      fit(net, *optimizer, context.rank(), size);
      outcomes.set(context.rank(), net);
    });
    auto start = make_net(1);
    outcomes.expect(values_of(reference), values_of(start));
  }
}

TEST_P(Distributed, AWrapperSharesEverythingWithTheOptimizerThatItWraps) {
  on_ranks(GetParam(), [&](Context& context) {
    auto net = make_net(1);
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.8));
    const auto rate_of = [](Optimizer& of) { return of.param_groups().front().options().get_lr(); };
    {
      DistributedOptimizer wrapper(adam, *net, DistributedOptimizerOptions{.context = &context});
      Optimizer& optimizer = wrapper;
      EXPECT_EQ(&optimizer.defaults(), &adam.defaults());
      WarmupLR warmup(optimizer, 4, 0.25);
      EXPECT_NEAR(rate_of(adam), 0.2, 1e-12);
      adam.param_groups().front().options().set_lr(0.5);
      EXPECT_EQ(rate_of(optimizer), 0.5);
      static_cast<torch::optim::AdamOptions&>(optimizer.param_groups().front().options()).lr(0.01);
      EXPECT_EQ(rate_of(adam), 0.01);

      loss_of(net, global_batch(context.rank())).backward();
      optimizer.step();
      EXPECT_EQ(wrapper.state().size(), 4u);
      EXPECT_TRUE(verify(optimizer, context));
      broadcast_optimizer_state(optimizer, 0, context);

      std::stringstream saved;
      torch::save(optimizer, saved);
      torch::optim::Adam fresh(net->parameters(), torch::optim::AdamOptions(0.8));
      torch::load(fresh, saved);
      EXPECT_EQ(rate_of(fresh), 0.01);
      EXPECT_EQ(fresh.state().size(), 4u);
      adam.state().clear();
      saved.seekg(0);
      torch::load(optimizer, saved);
      EXPECT_EQ(adam.state().size(), 4u);
    }
    EXPECT_EQ(rate_of(adam), 0.01);  // it outlives the wrapper
    adam.step();

    const auto wrap = [&](const NamedTensors& names) {
      DistributedOptimizer wrapper(adam, names, DistributedOptimizerOptions{.context = &context});
      adam.add_param_group({std::vector<torch::Tensor>{torch::ones({2})}});
      wrapper.step();
    };
    std::string message;
    EXPECT_EQ(code_of([&] { wrap({}); }, &message), Errc::invalid_argument);
    EXPECT_EQ(rate_of(adam), 0.01) << "what the constructor did before it threw is undone";
    EXPECT_EQ(code_of([&] { wrap(*net); }, &message), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("construct the DistributedOptimizer after add_param_group()"));
  });
}

TEST_P(Distributed, OptionsOfTheBaseMayBeLeftOut) {
  on_ranks(GetParam(), [&](Context& context) {
    auto net = make_net(1);
    const DistributedOptimizerOptions options{.num_groups = 2, .context = &context};
    {
      DistributedOptimizer<torch::optim::Adam> optimizer(*net, options);
      EXPECT_EQ(optimizer.param_groups().front().options().get_lr(), 1e-3);
    }
    DistributedOptimizer<torch::optim::Adam> optimizer(net->named_parameters(),
                                                       {.context = &context});
    EXPECT_EQ(optimizer.param_groups().front().params().size(), 4u);
  });
}

TEST_P(Distributed, TwoModelsInOneOptimizer) {
  on_ranks(GetParam(), [&](Context& context) {
    auto actor = make_net(1 + static_cast<std::uint64_t>(context.rank()));
    auto critic = make_net(50 + static_cast<std::uint64_t>(context.rank()));
    std::vector<NamedTensors::Item> both = actor->named_parameters().pairs();
    for (const auto& item : critic->named_parameters().pairs()) both.push_back(item);
    std::string message;
    EXPECT_EQ(
        code_of([&] { DistributedSGD optimizer(both, kSgd, {.context = &context}); }, &message),
        Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("two parameters are named 0.weight. Pass the named parameters"));
    EXPECT_THAT(message, HasSubstr("joined({{\"first\", *first}, {\"second\", *second}})"));

    const NamedTensors joined = NamedTensors::joined({{"actor", *actor}, {"critic", *critic}});
    EXPECT_EQ(joined.items()[4].first, "critic.0.weight");
    DistributedSGD optimizer(joined, kSgd, {.context = &context});
    (loss_of(actor, global_batch(context.rank())) + loss_of(critic, global_batch(7))).backward();
    optimizer.step();
    EXPECT_TRUE(verify(actor, context));
    EXPECT_TRUE(verify(critic, context));
  });
}

TEST_P(Distributed, AccumulatesBackwardPassesAndSendsTheLast) {
  const int size = GetParam();
  const auto accumulate = [](torch::nn::Sequential& net, int rank, int ranks) {
    loss_of(net, global_batch(0).of_rank(rank, ranks)).backward();
  };
  auto reference = make_net(1);
  torch::optim::SGD sgd(reference->parameters(), kSgd);
  for (const int batch : {0, 1, 0, 1}) {
    loss_of(reference, global_batch(batch)).backward();
    if (batch == 1) {
      sgd.step();
      sgd.zero_grad();
    }
  }
  Outcomes outcomes(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), kSgd,
                             {.backward_passes_per_step = 2, .context = &context});
    for (int step = 0; step < 2; ++step) {
      const auto before = context.stats().submitted;
      accumulate(net, context.rank(), size);
      EXPECT_EQ(context.stats().submitted, before);
      loss_of(net, global_batch(1).of_rank(context.rank(), size)).backward();
      EXPECT_EQ(context.stats().submitted, before + 4 + small_messages(size, step));
      optimizer.step();
      optimizer.zero_grad();
    }
    outcomes.set(context.rank(), net);
  });
  auto start = make_net(1);
  outcomes.expect(values_of(reference), values_of(start));
}

TEST_P(Distributed, NoSyncSendsNothingAndFewerPassesThanPlannedAreReducedAtStep) {
  const int size = GetParam();
  auto reference = make_net(1);
  torch::optim::SGD sgd(reference->parameters(), kSgd);
  for (const int batch : {0, 1, 2}) loss_of(reference, global_batch(batch)).backward();
  sgd.step();

  for (const int planned : {1, 2}) {
    Outcomes outcomes(size);
    on_ranks(size, [&](Context& context) {
      auto net = make_net(1);
      DistributedSGD optimizer(net->named_parameters(), kSgd,
                               {.backward_passes_per_step = planned, .context = &context});
      const auto before = context.stats().submitted;
      {
        const auto pause = optimizer.no_sync();
        for (const int batch : {0, 1}) {
          loss_of(net, global_batch(batch).of_rank(context.rank(), size)).backward();
        }
      }
      EXPECT_EQ(context.stats().submitted, before);
      loss_of(net, global_batch(2).of_rank(context.rank(), size)).backward();
      const auto sent = 4 + small_messages(size, 0);
      EXPECT_EQ(context.stats().submitted, planned == 1 ? before + sent : before);
      optimizer.step();
      outcomes.set(context.rank(), net);
    });
    auto start = make_net(1);
    outcomes.expect(values_of(reference), values_of(start));
  }
}

TEST_P(Distributed, ClipsBetweenSynchronizeAndStep) {
  const int size = GetParam();
  auto reference = make_net(1);
  torch::optim::SGD sgd(reference->parameters(), kSgd);
  train(reference, sgd, 0, 1, [&] {
    torch::nn::utils::clip_grad_norm_(reference->parameters(), 0.1);
    sgd.step();
  });
  Outcomes outcomes(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context});
    train(net, optimizer, context.rank(), size, [&] {
      optimizer.synchronize();
      torch::nn::utils::clip_grad_norm_(net->parameters(), 0.1);
      const auto skip = optimizer.skip_synchronize();
      optimizer.step();
    });
    outcomes.set(context.rank(), net);
  });
  auto start = make_net(1);
  outcomes.expect(values_of(reference), values_of(start));
}

TEST_P(Distributed, SumAndPredivideFactor) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    const auto reduced = [&](DistributedOptimizerOptions options) {
      torch::Tensor weight = torch::zeros({3}, torch::requires_grad());
      options.context = &context;
      DistributedSGD optimizer(NamedTensors{{"weight", weight}}, kSgd, options);
      (weight.sum() * (context.rank() + 1)).backward();
      optimizer.synchronize();
      return weight.grad()[0].item<double>();
    };
    const double sum = size * (size + 1) / 2.0;
    EXPECT_NEAR(reduced({}), sum / size, 1e-6);
    EXPECT_NEAR(reduced({.op = ReduceOp::sum}), sum, 1e-6);
    EXPECT_NEAR(reduced({.gradient_predivide_factor = 8}), sum / size, 1e-6);
  });
}

TEST_P(Distributed, ParametersStartAsThoseOfRank0UnlessLeftToTheUser) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    auto net = make_net(static_cast<std::uint64_t>(context.rank()));
    auto of_rank0 = make_net(0);
    {
      DistributedSGD left(net->named_parameters(), kSgd,
                          {.broadcast_parameters = false, .context = &context});
    }
    EXPECT_EQ(verify(net, context).identical, size == 1);
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context});
    EXPECT_TRUE(verify(net, context));
    EXPECT_EQ(largest_difference(values_of(net), values_of(of_rank0)), 0);
  });
}

}  // namespace
}  // namespace hvd::distributed_optimizer_test
