// The state is divided, the training is the same.
#include <sstream>

#include <gmock/gmock.h>

#include <hvd/torch/sharded_optimizer.hpp>

#include "training.hpp"

namespace hvd {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
namespace optim = torch::optim;

constexpr int kSteps = 8;

/// From step `begin` on; returns what `optimizer` minimised last.
void train(torch::nn::Sequential& net, optim::Optimizer& optimizer, int rank, int size, int begin,
           int end) {
  for (int step = begin; step < end; ++step) {
    loss_of(net, global_batch(step).of_rank(rank, size)).backward();
    optimizer.step();
  }
}

template <class Base, class Options>
std::vector<torch::Tensor> alone(const Options& options, int steps) {
  auto net = make_net(1);
  Base optimizer(net->parameters(), options);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(net, global_batch(step)).backward();
    optimizer.step();
  }
  return values_of(net);
}

template <class Base>
struct Case;
template <>
struct Case<optim::SGD> {
  static auto options() { return optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-3); }
};
template <>
struct Case<optim::Adam> {
  static auto options() { return optim::AdamOptions(0.01).amsgrad(true); }
};
template <>
struct Case<optim::AdamW> {
  static auto options() { return optim::AdamWOptions(0.01); }
};
template <>
struct Case<optim::Adagrad> {
  static auto options() { return optim::AdagradOptions(0.05); }
};
template <>
struct Case<optim::RMSprop> {
  static auto options() { return optim::RMSpropOptions(0.01).momentum(0.5).centered(true); }
};

// Of several sizes, so that shards begin and end inside of parameters.
constexpr std::int64_t kBucketSizes[] = {1, 150, 25 << 20};

template <class Base>
class Sharded : public testing::Test {};
using Kinds = testing::Types<optim::SGD, optim::Adam, optim::AdamW, optim::Adagrad, optim::RMSprop>;
TYPED_TEST_SUITE(Sharded, Kinds);

TYPED_TEST(Sharded, EqualsOneProcess) {
  const auto options = Case<TypeParam>::options();
  auto start = make_net(1);
  const auto wanted = alone<TypeParam>(options, kSteps);
  for (const int size : {1, 2, 3, 4}) {
    for (const std::int64_t bytes : kBucketSizes) {
      Outcomes outcomes(size);
      on_ranks(size, [&](Context& context) {
        auto net = make_net(1 + 10 * static_cast<std::uint64_t>(context.rank()));
        ShardedOptimizer<TypeParam> optimizer(net->named_parameters(), options,
                                              {.bucket_bytes = bytes, .context = &context});
        train(net, optimizer, context.rank(), size, 0, kSteps);
        outcomes.set(context.rank(), net);
      });
      outcomes.expect(wanted, values_of(start));
    }
  }
}

TYPED_TEST(Sharded, AStateIsLoadedByAnyNumberOfRanks) {
  const auto options = Case<TypeParam>::options();
  auto start = make_net(1);
  const auto wanted = alone<TypeParam>(options, kSteps);
  for (const auto& [before, after] : {std::pair(3, 2), std::pair(1, 4), std::pair(4, 1)}) {
    std::string saved;
    auto half_way = make_net(1);
    on_ranks(before, [&, before = before](Context& context) {
      auto net = make_net(1);
      ShardedOptimizer<TypeParam> optimizer(net->named_parameters(), options,
                                            {.bucket_bytes = 150, .context = &context});
      train(net, optimizer, context.rank(), before, 0, kSteps / 2);
      torch::serialize::OutputArchive archive;
      optimizer.save(archive);
      if (context.rank() != 0) return;
      std::ostringstream stream;
      archive.save_to(stream);
      saved = stream.str();
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < net->parameters().size(); ++i) {
        half_way->parameters()[i].copy_(net->parameters()[i]);
      }
    });
    Outcomes outcomes(after);
    on_ranks(after, [&, after = after](Context& context) {
      auto net = make_net(1);
      {
        const torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < net->parameters().size(); ++i) {
          net->parameters()[i].copy_(half_way->parameters()[i]);
        }
      }
      ShardedOptimizer<TypeParam> optimizer(net->named_parameters(), options,
                                            {.context = &context});
      std::istringstream stream(saved);
      torch::serialize::InputArchive archive;
      archive.load_from(stream);
      optimizer.load(archive);
      train(net, optimizer, context.rank(), after, kSteps / 2, kSteps);
      outcomes.set(context.rank(), net);
    });
    outcomes.expect(wanted, values_of(start));
  }
}

using ShardedAdam = ShardedOptimizer<optim::Adam>;
const auto kAdam = optim::AdamOptions(0.01);

class ShardedAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShardedAt, testing::Values(1, 2, 3, 4));

TEST_P(ShardedAt, KeepsItsShareOfTheState) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    std::int64_t elements = 0;
    for (const auto& parameter : net->parameters()) elements += parameter.numel();
    ShardedAdam optimizer(net->named_parameters(), kAdam, {.context = &context});
    train(net, optimizer, context.rank(), context.size(), 0, 1);
    std::int64_t kept = 0;
    for (const auto& [key, state] : optimizer.state()) {
      kept += static_cast<const optim::AdamParamState&>(*state).exp_avg().numel();
    }
    EXPECT_LE(kept, elements / context.size() + 1);
    EXPECT_GE(kept, elements / context.size());
    for (const auto& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
  });
}

TEST_P(ShardedAt, ClipsTheNormOfAllGradients) {
  const int size = GetParam();
  auto reference = make_net(1);
  optim::SGD sgd(reference->parameters(), optim::SGDOptions(1));
  loss_of(reference, global_batch(0)).backward();
  const double norm = torch::nn::utils::clip_grad_norm_(reference->parameters(), 0.01);
  sgd.step();
  ASSERT_GT(norm, 0.1);
  Outcomes outcomes(size);
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    ShardedOptimizer<optim::SGD> optimizer(net->named_parameters(), optim::SGDOptions(1),
                                           {.bucket_bytes = 150, .context = &context});
    loss_of(net, global_batch(0).of_rank(context.rank(), size)).backward();
    EXPECT_NEAR(optimizer.clip_grad_norm(0.01), norm, 1e-4);
    optimizer.step();
    outcomes.set(context.rank(), net);
  });
  auto start = make_net(1);
  outcomes.expect(values_of(reference), values_of(start), 1e-6);
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
    EXPECT_TRUE(verify(context, *net));
  });
}

TEST_P(ShardedAt, MisuseIsNamed) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    std::string message;
    EXPECT_EQ(code_of(
                  [&] {
                    ShardedAdam bad(net->named_parameters(), kAdam,
                                    {.bucket_bytes = 0, .context = &context});
                  },
                  &message),
              Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("bucket_bytes is 0"));

    ShardedAdam optimizer(net->named_parameters(), kAdam, {.context = &context});
    loss_of(net, global_batch(0)).backward();
    loss_of(net, global_batch(0)).backward();
    EXPECT_EQ(code_of([&] { optimizer.step(); }, &message), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("twice before step()"));
    // And goes on.
    loss_of(net, global_batch(0)).backward();
    optimizer.step();

    ShardedOptimizer<optim::SGD> other(net->named_parameters(), optim::SGDOptions(1),
                                       {.context = &context});
    torch::serialize::OutputArchive saved;
    optimizer.save(saved);
    std::ostringstream out;
    if (context.rank() == 0) saved.save_to(out);
    if (context.rank() != 0) return;
    std::istringstream in(out.str());
    torch::serialize::InputArchive archive;
    archive.load_from(in);
    EXPECT_EQ(code_of([&] { other.load(archive); }, &message), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("is of Adam, not SGD"));
  });
}

}  // namespace
}  // namespace hvd
