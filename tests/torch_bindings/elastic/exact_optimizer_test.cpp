// Tests the sum over shards and the ExactOptimizer with ranks that are threads. They share
// LibTorch's random generator, so nothing here is random.
#include <set>
#include <sstream>

#include <gmock/gmock.h>

#include "../training.hpp"
#include "exact/shard_sum.hpp"

namespace hvd::exact_optimizer_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;

constexpr std::int64_t kElements = 1037;

torch::Tensor row_of(int shard) {
  return normal({kElements}, static_cast<std::uint64_t>(shard + 1), 1.0).to(torch::kFloat32);
}

/// Returns the sum of the shards of a node of the tree, which is independent of `ShardSum`.
torch::Tensor sum_of_node(int begin, int size, int shards) {
  if (size == 1) return row_of(begin);
  const int middle = begin + size / 2;
  const torch::Tensor left = sum_of_node(begin, size / 2, shards);
  return middle < shards ? left + sum_of_node(middle, size / 2, shards) : left;
}

void set_gradients(const std::vector<torch::Tensor>& parameters, const torch::Tensor& row) {
  std::int64_t at = 0;
  for (const torch::Tensor& parameter : parameters) {
    parameter.mutable_grad() = row.narrow(0, at, parameter.numel()).view(parameter.sizes());
    at += parameter.numel();
  }
}

TEST(ExactOptimizer, TheSumHasTheSameBitsForAnyNumberOfRanks) {
  for (const int shards : {1, 2, 3, 5, 7, 8, 12}) {
    const torch::Tensor expected = sum_of_node(0, 16, shards);
    for (const int ranks : {1, 2, 3, 4}) {
      on_ranks(ranks, [&](Context& context) {
        // The sum goes over the elements of two parameters.
        const std::vector<torch::Tensor> parameters{
            torch::empty({17, 2}, torch::requires_grad()),
            torch::empty({kElements - 34}, torch::requires_grad())};
        detail::ShardRows rows(parameters,
                               [](std::int64_t count) { return torch::empty({count}); });
        const auto mine = detail::shards_of_rank(shards, context.rank(), ranks);
        torch::Tensor total;
        for (int step = 0; step < 2; ++step) {
          rows.begin();
          for (int shard = mine.begin; shard < mine.end; ++shard) {
            set_gradients(parameters, row_of(shard));
            rows.add(shard);
          }
          total = rows.over_ranks(shards, "sum", context);
        }
        EXPECT_TRUE(torch::equal(total, expected)) << shards << " shards, " << ranks << " ranks";
      });
    }
  }
}

// A row that is used again holds the gradients of the step before. -0 + 0 is 0, but -0 alone stays
// -0, so the sign would depend on the ranks if nothing were added for a missing gradient.
TEST(ExactOptimizer, AMissingGradientIsAddedAsZero) {
  for (const int ranks : {1, 2, 3, 4}) {
    on_ranks(ranks, [&](Context& context) {
      const torch::Tensor parameter = torch::empty({kElements}, torch::requires_grad());
      detail::ShardRows rows({parameter}, [](std::int64_t count) { return torch::empty({count}); });
      const auto mine = detail::shards_of_rank(4, context.rank(), ranks);
      torch::Tensor total;
      for (const bool is_again : {false, true}) {
        rows.begin();
        for (int shard = mine.begin; shard < mine.end; ++shard) {
          parameter.mutable_grad() =
              is_again ? -torch::zeros({kElements}) : torch::ones({kElements});
          if (is_again && shard % 2 == 1) parameter.mutable_grad().reset();
          rows.add(shard);
        }
        total = rows.over_ranks(4, "sum", context);
      }
      EXPECT_TRUE(torch::equal(total, torch::zeros({kElements})));
      EXPECT_FALSE(torch::signbit(total).any().item<bool>()) << ranks << " ranks";
    });
  }
}

TEST(ExactOptimizer, ARankSendsAsManyRowsAsItsShardsHaveNodes) {
  const auto rows = [](int begin, int end) {
    detail::ShardSum sum;
    for (int shard = begin; shard < end; ++shard) sum.add({shard, 1, {}});
    return sum.blocks().size();
  };
  EXPECT_EQ(rows(0, 8), 1U);
  EXPECT_EQ(rows(4, 8), 1U);
  EXPECT_EQ(rows(2, 5), 2U);
  EXPECT_EQ(rows(1, 8), 3U);
  EXPECT_EQ(rows(3, 3), 0U);
}

/// A network that is trained with shards of the 24 examples.
struct Exact {
  int shards = 4;
  torch::nn::Sequential net = make_net(1);
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)};
  ElasticSampler sampler{static_cast<std::size_t>(kGlobalBatch),
                         {.shuffle = false,
                          .rank = 0,
                          .size = 1,
                          .global_batch = static_cast<std::size_t>(kGlobalBatch),
                          .shards = shards}};
  ExactOptimizer optimizer{sgd, *net, sampler};

  torch::Tensor loss(const BatchShard& shard, int step) {
    const std::vector<std::int64_t> examples(shard.examples.begin(), shard.examples.end());
    const Batch batch = global_batch(step);
    const torch::Tensor rows = torch::tensor(examples);
    return loss_of(net, {batch.inputs.index({rows}), batch.targets.index({rows})});
  }
  double step(int number) {
    sampler.reset();
    const double loss = optimizer.backward(
        *sampler.next(0), [&](const BatchShard& shard) { return this->loss(shard, number); });
    optimizer.step();
    return loss;
  }
};

void on_three_ranks(const std::function<void()>& body) {
  threads(
      3, [&body](Context&) { body(); }, thread_config(0, 3));
}

TEST(ExactOptimizer, TrainsLikeOneProcessWithTheWholeBatch) {
  auto alone = make_net(1);
  torch::optim::SGD sgd(alone->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    alone->zero_grad();
    const torch::Tensor loss = loss_of(alone, global_batch(step));
    losses.push_back(loss.item<double>());
    loss.backward();
    sgd.step();
  }
  on_three_ranks([&] {
    Exact exact{.shards = 5};  // four of five examples, and one of four
    for (int step = 0; step < 3; ++step) {
      EXPECT_NEAR(exact.step(step), losses[static_cast<std::size_t>(step)], 1e-5);
    }
    EXPECT_LT(largest_difference(values_of(exact.net), values_of(alone)), 1e-5);
  });
}

// The buffers of the module are those of shard 0, and no rank has more than those of its shards.
TEST(ExactOptimizer, EachShardHasItsOwnBuffers) {
  on_three_ranks([] {
    Exact exact;
    torch::Tensor seen = exact.net->register_buffer("seen", torch::zeros({2}, torch::kFloat64));
    torch::Tensor count = exact.net->register_buffer("count", torch::tensor(7));
    for (int step = 0; step < 2; ++step) {
      exact.sampler.reset();
      exact.optimizer.backward(*exact.sampler.next(0), [&](const BatchShard& shard) {
        EXPECT_EQ(count.item<std::int64_t>(), 7 + step * (shard.number + 1));
        const torch::NoGradGuard no_grad;
        count.add_(shard.number + 1);
        seen[1].fill_(static_cast<double>(shard.examples.front()));
        const torch::AutoGradMode with_gradients(true);
        return exact.loss(shard, step);
      });
      EXPECT_EQ(count.item<std::int64_t>(), 8 + step);
      EXPECT_EQ(seen[1].item<double>(), 0);
      exact.optimizer.step();
    }
    const torch::Tensor rows = exact.optimizer.progress().buffers;
    EXPECT_EQ(rows.size(0), 4);
    const torch::Tensor last = rows[3].narrow(0, 0, 16).clone().view(torch::kFloat64);
    EXPECT_EQ(last[1].item<double>(), 18);
  });
}

TEST(ExactOptimizer, RandomNumbersDependOnTheShardAndGoOnOutside) {
  threads(
      1,
      [](Context&) {
        Exact exact;
        torch::manual_seed(3);
        const torch::Tensor all = torch::rand({4});
        torch::manual_seed(3);
        const torch::Tensor before = torch::rand({2});
        std::set<float> drawn;
        for (int step = 0; step < 2; ++step) {
          exact.sampler.reset();
          exact.optimizer.backward(*exact.sampler.next(0), [&](const BatchShard& shard) {
            const torch::Tensor draw = torch::rand({1});
            auto generator = at::detail::createCPUGenerator(shard.seed);
            EXPECT_TRUE(torch::equal(draw, torch::rand({1}, generator)));
            drawn.insert(draw.item<float>());
            return exact.loss(shard, step);
          });
          exact.optimizer.step();
        }
        EXPECT_EQ(drawn.size(), 8U);
        EXPECT_TRUE(torch::equal(torch::cat({before, torch::rand({2})}), all));
      },
      thread_config(0, 1));
}

TEST(ExactOptimizer, AParameterThatNoShardUsesHasNoGradient) {
  on_three_ranks([] {
    Exact exact;
    const auto& parameters = exact.net->parameters();
    exact.sampler.reset();
    exact.optimizer.backward(*exact.sampler.next(0), [&](const BatchShard& shard) {
      // Only shard 2 uses the second parameter.
      const torch::Tensor sum = parameters[0].sum() * 2;
      return shard.number == 2 ? sum + parameters[1].sum() : sum;
    });
    EXPECT_TRUE(torch::equal(parameters[0].grad(), torch::full_like(parameters[0], 2)));
    EXPECT_TRUE(torch::equal(parameters[1].grad(), torch::full_like(parameters[1], 0.25)));
    EXPECT_FALSE(parameters[2].grad().defined());
  });
}

TEST(ExactOptimizer, AShardWithoutExamplesAddsNothing) {
  on_three_ranks([] {
    Exact exact;
    const torch::Tensor parameter = exact.net->parameters()[0];
    exact.optimizer.backward({0, 1}, [&](const BatchShard& shard) {
      EXPECT_EQ(shard.examples.size(), 1U);  // two of the four shards have one
      return parameter.sum();
    });
    EXPECT_TRUE(torch::equal(parameter.grad(), torch::ones_like(parameter)));
  });
}

TEST(ExactOptimizer, ParametersCanBeFrozenBetweenSteps) {
  auto alone = make_net(1);
  torch::optim::SGD sgd(alone->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto is_trained = [](int step) { return step % 2 == 1; };
  for (int step = 0; step < 4; ++step) {
    alone->parameters()[0].requires_grad_(is_trained(step));
    alone->zero_grad();
    loss_of(alone, global_batch(step)).backward();
    sgd.step();
  }
  on_three_ranks([&] {
    Exact exact;
    for (int step = 0; step < 4; ++step) {
      exact.net->parameters()[0].requires_grad_(is_trained(step));
      exact.step(step);
    }
    EXPECT_LT(largest_difference(values_of(exact.net), values_of(alone)), 1e-5);
  });
}

TEST(ExactOptimizer, APassThatHasFailedIsNotStepped) {
  on_three_ranks([] {
    Exact exact;
    const auto before = values_of(exact.net);
    const auto pass = [&](bool fails) {
      exact.sampler.reset();
      exact.optimizer.backward(*exact.sampler.next(0), [&](const BatchShard& shard) {
        if (fails) throw std::runtime_error("no loss");
        return exact.loss(shard, 0);
      });
    };
    pass(false);  // its step is skipped
    EXPECT_THROW(pass(true), std::runtime_error);
    EXPECT_EQ(code_of([&] { exact.optimizer.step(); }), Errc::invalid_argument);
    EXPECT_EQ(largest_difference(values_of(exact.net), before), 0);
  });
}

TEST(ExactOptimizer, ASavedStateGoesOnWithTheSameBits) {
  on_three_ranks([] {
    Exact once;
    Exact twice;
    for (Exact* const exact : {&once, &twice}) {
      exact->net->register_buffer("count", torch::tensor(0));
      exact->step(0);
    }
    torch::serialize::OutputArchive saved;
    once.optimizer.progress().buffers.add_(1);
    once.optimizer.save(saved);
    twice.optimizer.progress().steps = 7;
    std::stringstream bytes;
    saved.save_to(bytes);
    torch::serialize::InputArchive archive;
    archive.load_from(bytes);
    twice.optimizer.load(archive);
    EXPECT_EQ(twice.optimizer.progress().steps, 1);
    EXPECT_TRUE(
        torch::equal(twice.optimizer.progress().buffers, once.optimizer.progress().buffers));
    for (Exact* const exact : {&once, &twice}) exact->step(1);
    EXPECT_EQ(largest_difference(values_of(once.net), values_of(twice.net)), 0);
    twice.sampler = ElasticSampler(24, {.rank = 0, .size = 1, .global_batch = 24, .shards = 5});
    ExactOptimizer other(twice.sgd, *twice.net, twice.sampler);
    std::string message;
    EXPECT_EQ(code_of([&] { other.load(archive); }, &message), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("saved with 4 shards, and there are 5"));
  });
}

/// A program that misuses the optimizer, and a part of the error that it must get.
struct Misuse {
  std::string says;
  std::function<void(Exact&)> program;
  Errc code = Errc::invalid_argument;
};

TEST(ExactOptimizer, ErrorsSayWhatIsWrong) {
  const auto with_loss = [](const std::function<torch::Tensor(const BatchShard&)>& loss) {
    return [loss](Exact& exact) {
      exact.sampler.reset();
      exact.optimizer.backward(*exact.sampler.next(0), loss);
    };
  };
  const std::vector<Misuse> all{
      {"a global batch of 4 examples cannot be divided into 8 shards",
       [](Exact&) { ElasticSampler(100, {.rank = 0, .size = 1, .global_batch = 4, .shards = 8}); }},
      {"a global batch of 0 examples cannot be divided into 2 shards",
       [](Exact&) { ElasticSampler(100, {.rank = 0, .size = 1, .shards = 2}); }},
      {"the sampler has no shards",
       [](Exact& exact) {
         ExactOptimizer(exact.sgd, *exact.net, ElasticSampler(100, {.rank = 0, .size = 1}));
       }},
      {"because this one communicates itself",
       [](Exact& exact) {
         DistributedOptimizer<> communicates(exact.sgd, exact.net);
         ExactOptimizer(communicates, *exact.net, exact.sampler);
       }},
      {"LBFGS computes the loss several times",
       [](Exact& exact) {
         torch::optim::LBFGS lbfgs(exact.net->parameters());
         ExactOptimizer(lbfgs, *exact.net, exact.sampler);
       },
       Errc::unsupported},
      {"the function returned 6 losses; it must return the mean",
       with_loss([](const BatchShard& shard) {
         return torch::zeros({std::ssize(shard.examples)}, torch::requires_grad());
       })},
      {"the function returned no loss",
       with_loss([](const BatchShard&) { return torch::Tensor(); })},
      {"needs no gradient", with_loss([](const BatchShard&) { return torch::zeros({}); })},
      {"needs a call of the optimizer's own backward()",
       [](Exact& exact) { exact.optimizer.step(); }},
      {"takes no closure",
       [](Exact& exact) { exact.optimizer.step([] { return torch::Tensor(); }); }},
      {"the parameters that need a gradient: rank 1 differs from rank 0",
       [](Exact& exact) {
         exact.net->parameters()[static_cast<std::size_t>(rank())].requires_grad_(false);
         exact.step(0);
       },
       Errc::mismatch},
      {"the examples of the batch: rank 1 differs from rank 0",
       [](Exact& exact) {
         std::vector<std::size_t> batch{0, 1, 2, 3};
         if (rank() == 1) batch = {0, 1, 3, 2};
         exact.optimizer.backward(batch,
                                  [&](const BatchShard& shard) { return exact.loss(shard, 0); });
       },
       Errc::mismatch}};
  for (const Misuse& misuse : all) {
    threads(
        2,
        [&misuse](Context&) {
          Exact exact;
          std::string message;
          EXPECT_EQ(code_of([&] { misuse.program(exact); }, &message), misuse.code);
          EXPECT_THAT(message, HasSubstr(misuse.says));
        },
        thread_config(0, 2));
  }
}

}  // namespace
}  // namespace hvd::exact_optimizer_test
