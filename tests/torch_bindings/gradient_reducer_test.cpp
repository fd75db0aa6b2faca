// Tests the hooks in less usual cases: overlap, unused, frozen and shared parameters, several
// optimizers, and misuse.
#include <latch>

#include <gmock/gmock.h>
#include <sys/eventfd.h>

#include <hvd/core/internal/fd.hpp>

#include "training.hpp"

namespace hvd::gradient_reducer_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
using DistributedSGD = DistributedOptimizer<torch::optim::SGD>;

const auto kSgd = torch::optim::SGDOptions(0.1).momentum(0.9);

class Reducer : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Reducer, testing::Values(1, 2, 3, 4));

/// Identity whose backward pass waits for the context to start a collective.
struct AwaitCollective : torch::autograd::Function<AwaitCollective> {
  static torch::Tensor forward(torch::autograd::AutogradContext* saved, const torch::Tensor& input,
                               std::int64_t context, std::int64_t seen) {
    saved->saved_data["context"] = context;
    saved->saved_data["seen"] = seen;
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 const torch::autograd::variable_list& gradients) {
    const auto& context = *reinterpret_cast<Context*>(saved->saved_data["context"].toInt());
    const auto seen = static_cast<std::uint64_t>(saved->saved_data["seen"].toInt());
    const Deadline deadline = Clock::now() + std::chrono::seconds(20);
    while (context.stats().collectives_started == seen) {
      if (Clock::now() > deadline) {
        ADD_FAILURE() << "no collective started before the backward pass had ended";
        break;
      }
      std::this_thread::yield();
    }
    return {gradients[0], torch::Tensor(), torch::Tensor()};
  }
};

TEST_P(Reducer, CommunicatesWhileTheBackwardPassRuns) {
  on_ranks(GetParam(), [&](Context& context) {
    torch::nn::Linear first(kFeatures, 8);
    torch::nn::Linear second(8, kClasses);
    NamedTensors named{{"first.weight", first->weight},
                       {"first.bias", first->bias},
                       {"second.weight", second->weight},
                       {"second.bias", second->bias}};
    DistributedSGD optimizer(named, kSgd, {.context = &context});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const auto seen = static_cast<std::int64_t>(context.stats().collectives_started);
      const torch::Tensor hidden = AwaitCollective::apply(
          first(global_batch(step).inputs), reinterpret_cast<std::int64_t>(&context), seen);
      second(hidden).square().mean().backward();
      optimizer.step();
    }
  });
}

TEST_P(Reducer, RunsFewerCollectivesThanThereAreGradients) {
  constexpr std::size_t kParameters = 64;
  constexpr int kSteps = 5;
  on_ranks(GetParam(), [&](Context& context) {
    std::vector<NamedTensors::Item> items;
    for (std::size_t i = 0; i < kParameters; ++i) {
      items.emplace_back(std::to_string(i), torch::ones({16}, torch::requires_grad()));
    }
    const NamedTensors named(items);
    DistributedSGD optimizer(named, kSgd, {.context = &context});
    const Stats before = context.stats();
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      torch::Tensor sum = torch::zeros({});
      for (const auto& [name, parameter] : items) sum = sum + parameter.square().sum();
      sum.backward();
      optimizer.step();
    }
    const Stats after = context.stats();
    EXPECT_EQ(after.submitted - before.submitted,
              kSteps * (kParameters + small_messages(context.size(), 1)) +
                  small_messages(context.size(), 0) - small_messages(context.size(), 1));
    if (context.size() > 1) {  // alone, each may be over before the next is submitted
      EXPECT_LT(after.collectives - before.collectives, kSteps * kParameters);
      EXPECT_GT(after.fused_tensors, before.fused_tensors);
    }
    EXPECT_TRUE(verify(named, context));
  });
}

TEST_P(Reducer, UnusedParametersTakePartWithZeros) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    torch::Tensor used = torch::ones({2}, torch::requires_grad());
    torch::Tensor sometimes = torch::ones({3}, torch::requires_grad());
    torch::Tensor never = torch::ones({4}, torch::requires_grad());
    const NamedTensors named{{"used", used}, {"sometimes", sometimes}, {"never", never}};
    DistributedSGD optimizer(named, torch::optim::SGDOptions(1.0), {.context = &context});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad(step == 1);
      torch::Tensor loss = used.sum();
      if (context.rank() == 0) loss = loss + sometimes.sum();
      loss.backward();
      optimizer.step();
    }
    const double share = 3.0 / size;
    EXPECT_NEAR(used[0].item<double>(), 1 - 3, 1e-5);
    EXPECT_NEAR(sometimes[0].item<double>(), 1 - share, 1e-5);
    EXPECT_NEAR(never[0].item<double>(), 1, 1e-5);
    EXPECT_TRUE(verify(named, context));
    optimizer.step();  // without any backward pass: collective all the same
    EXPECT_TRUE(verify(named, context));
  });
}

TEST_P(Reducer, FrozenParametersStayAndComeBack) {
  on_ranks(GetParam(), [&](Context& context) {
    torch::Tensor steady = torch::ones({2}, torch::requires_grad());
    torch::Tensor thawing = torch::ones({2}, torch::requires_grad());
    torch::Tensor late = torch::ones({2});  // frozen from the beginning
    const NamedTensors named{{"steady", steady}, {"thawing", thawing}, {"late", late}};
    DistributedSGD optimizer(named, kSgd, {.context = &context});
    const auto step = [&] {
      optimizer.zero_grad();
      (steady.sum() + (thawing * (context.rank() + 1)).sum() + late.sum()).backward();
      optimizer.step();
      EXPECT_TRUE(verify(named, context));
    };
    step();
    thawing.set_requires_grad(false);
    const torch::Tensor before = thawing.clone();
    step();
    step();
    EXPECT_TRUE(torch::equal(thawing, before)) << "momentum moved a frozen parameter";
    EXPECT_TRUE(late.eq(1).all().item<bool>());
    thawing.set_requires_grad(true);
    late.set_requires_grad(true);
    step();
    step();
    EXPECT_FALSE(torch::equal(thawing, before));
    EXPECT_FALSE(late.eq(1).all().item<bool>());
  });
}

// Ranks tell each other which gradients are sparse, in a small allreduce. A frozen parameter has no
// gradients, so it needs none.
TEST_P(Reducer, OneSmallAllreduceEndsWhenAllTrainedParametersWereUsed) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    torch::Tensor used = torch::ones({2}, torch::requires_grad());
    torch::Tensor late = torch::ones({2}, torch::requires_grad());
    torch::Tensor frozen = torch::ones({2});
    DistributedSGD optimizer(NamedTensors{{"used", used}, {"late", late}, {"frozen", frozen}}, kSgd,
                             {.context = &context});
    constexpr int kFirst = 2;  // the step in which the last rank uses `late`
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      const bool uses_late = step == kFirst && context.rank() == size - 1;
      const auto before = context.stats().submitted;
      (uses_late ? used.sum() + late.sum() : used.sum()).backward();
      optimizer.step();
      EXPECT_EQ(context.stats().submitted - before,
                2 + small_messages(size, step <= kFirst ? 0 : 1))
          << "in step " << step;
    }
  });
}

TEST_P(Reducer, SharedParametersAreReducedAndSteppedOnce) {
  on_ranks(GetParam(), [&](Context& context) {
    torch::nn::Linear layer(4, 4);
    torch::nn::Sequential net(layer, layer);
    ASSERT_EQ(net->named_parameters().size(), 4u);
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context});
    EXPECT_EQ(optimizer.param_groups()[0].params().size(), 2u);
    const auto before = context.stats().submitted;
    net->forward(torch::ones({2, 4}) * context.rank()).sum().backward();
    optimizer.step();
    EXPECT_EQ(context.stats().submitted, before + 2 + small_messages(context.size(), 0));
    EXPECT_TRUE(verify(net, context));
  });
}

TEST_P(Reducer, GradientsOfAnyStridesAreReduced) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    // The layout is channels last, which is dense but not row-major, and so is that of the
    // gradient.
    torch::Tensor weight =
        torch::ones({2, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    DistributedSGD optimizer(NamedTensors{{"weight", weight}}, torch::optim::SGDOptions(1.0),
                             {.context = &context});
    const torch::Tensor scale = torch::arange(24.0).view({2, 3, 2, 2});
    (weight * scale * (context.rank() + 1)).sum().backward();
    optimizer.step();
    EXPECT_TRUE(torch::allclose(weight.detach(), 1 - scale * (size + 1) / 2.0));
  });
}

TEST_P(Reducer, TwoOptimizersWithTheSameNamesInOneBackwardPass) {
  on_ranks(GetParam(), [&](Context& context) {
    auto a = make_net(1);
    auto b = make_net(2);
    DistributedSGD first(a->named_parameters(), kSgd, {.context = &context});
    DistributedSGD second(b->named_parameters(), kSgd, {.context = &context});
    for (int step = 0; step < 3; ++step) {
      first.zero_grad();
      second.zero_grad();
      const Batch batch = global_batch(step).of_rank(context.rank(), context.size());
      (loss_of(a, batch) + loss_of(b, batch)).backward();
      second.step();
      first.step();
    }
    EXPECT_TRUE(verify(a, context));
    EXPECT_TRUE(verify(b, context));
  });
}

TEST_P(Reducer, HooksGoWithTheOptimizer) {
  on_ranks(GetParam(), [&](Context& context) {
    auto net = make_net(1);
    { DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context}); }
    const auto before = context.stats().submitted;
    loss_of(net, global_batch(0)).backward();
    EXPECT_EQ(context.stats().submitted, before);
  });
}

TEST_P(Reducer, TooManyBackwardPasses) {
  on_ranks(GetParam(), [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), kSgd,
                             {.wait_in_backward = false, .context = &context});
    const auto pass = [&] { loss_of(net, global_batch(0)).backward(); };
    pass();
    std::string message;
    EXPECT_EQ(code_of(pass, &message), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("backward_passes_per_step = 1"));
    EXPECT_EQ(code_of([&] { optimizer.step(); }), Errc::invalid_argument);
    // After the error the same names work again.
    optimizer.zero_grad();
    pass();
    optimizer.step();
    EXPECT_TRUE(verify(net, context));
  });
}

TEST_P(Reducer, GradientsTouchedWhileTheyAreReduced) {
  on_ranks(GetParam(), [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), kSgd,
                             {.wait_in_backward = false, .context = &context});
    torch::optim::Optimizer& base = optimizer;
    const std::vector<std::function<void()>> touches{
        [&] { base.zero_grad(true); },
        [&] { base.zero_grad(false); },
        [&] { net->parameters()[1].mutable_grad() = torch::zeros({8}); },
        [&] { net->parameters()[2].mutable_grad().mul_(0.5); },
    };
    for (const auto& touch : touches) {
      loss_of(net, global_batch(0)).backward();
      std::string message;
      EXPECT_EQ(code_of([&] { optimizer.zero_grad(); }, &message), Errc::invalid_argument);
      EXPECT_THAT(message, HasSubstr("zero_grad()"));
      touch();
      EXPECT_EQ(code_of([&] { optimizer.step(); }, &message), Errc::invalid_argument);
      EXPECT_THAT(message, HasSubstr("changed, replaced or zeroed"));
      optimizer.zero_grad();
    }
    loss_of(net, global_batch(0)).backward();
    optimizer.step();
    EXPECT_TRUE(verify(net, context));
  });
}

TEST_P(Reducer, SynchronizeReducesOnceAndSkippingNeedsIt) {
  on_ranks(GetParam(), [&](Context& context) {
    for (const bool wait : {false, true}) {
      auto net = make_net(1);
      DistributedSGD optimizer(net->named_parameters(), kSgd,
                               {.wait_in_backward = wait, .context = &context});
      const auto before = context.stats().submitted;
      loss_of(net, global_batch(0)).backward();
      {
        const auto skip = optimizer.skip_synchronize();
        if (!wait) {
          EXPECT_EQ(code_of([&] { optimizer.step(); }), Errc::invalid_argument);
        }
        EXPECT_EQ(code_of([&] { optimizer.step([] { return torch::zeros({}); }); }),
                  Errc::invalid_argument);
      }
      optimizer.synchronize();
      optimizer.synchronize();
      optimizer.step();
      EXPECT_EQ(context.stats().submitted, before + 4 + small_messages(context.size(), 0));
      optimizer.zero_grad();
      // The program skips a step after synchronize(), as a gradient scaler does for infinite
      // values.
      loss_of(net, global_batch(1)).backward();
      optimizer.synchronize();
      optimizer.zero_grad();
      loss_of(net, global_batch(2)).backward();
      optimizer.step();
      EXPECT_TRUE(verify(net, context));
    }
  });
}

TEST_P(Reducer, NamesAndOptionsAreCheckedBeforeAnythingIsSent) {
  on_ranks(GetParam(), [&](Context& context) {
    torch::Tensor a = torch::ones({2}, torch::requires_grad());
    torch::Tensor b = torch::ones({2}, torch::requires_grad());
    torch::optim::SGD sgd(std::vector<torch::Tensor>{a, b}, kSgd);
    const auto before = context.stats().submitted;
    std::string message;
    const auto wrap = [&](std::vector<NamedTensors::Item> items,
                          DistributedOptimizerOptions options = {}) {
      options.context = &context;
      return code_of([&] { DistributedOptimizer optimizer(sgd, NamedTensors(items), options); },
                     &message);
    };
    EXPECT_EQ(wrap({{"a", a}}), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("1 parameters of the optimizer have no name"));
    EXPECT_EQ(wrap({{"a", a}, {"a", b}}), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("two parameters are named a"));
    EXPECT_EQ(wrap({{"a", a}, {"", b}}), Errc::invalid_argument);
    const std::vector<NamedTensors::Item> both{{"a", a}, {"b", b}};
    EXPECT_EQ(wrap(both, {.op = ReduceOp::max}), Errc::invalid_argument);
    EXPECT_EQ(wrap(both, {.backward_passes_per_step = 0}), Errc::invalid_argument);
    EXPECT_EQ(wrap(both, {.gradient_predivide_factor = 0}), Errc::invalid_argument);
    EXPECT_EQ(wrap(both, {.op = ReduceOp::sum, .gradient_predivide_factor = 2}),
              Errc::invalid_argument);
    EXPECT_EQ(context.stats().submitted, before);
    EXPECT_EQ(wrap(both), std::nullopt);
  });
}

TEST_P(Reducer, RanksThatDifferAreToldSoAtConstruction) {
  const int size = GetParam();
  if (size == 1) return;
  on_ranks(size, [&](Context& context) {
    const bool odd = context.rank() == size - 1;
    const auto construct = [&](const torch::Tensor& weight, const std::string& name, int passes) {
      std::string message;
      EXPECT_EQ(code_of(
                    [&] {
                      DistributedSGD optimizer(
                          NamedTensors{{name, weight}}, kSgd,
                          {.backward_passes_per_step = passes, .context = &context});
                    },
                    &message),
                Errc::mismatch);
      return message;
    };
    const torch::Tensor two = torch::ones({2}, torch::requires_grad());
    const torch::Tensor three = torch::ones({3}, torch::requires_grad());
    EXPECT_THAT(construct(odd ? three : two, "weight", 1),
                HasSubstr("weight: rank " + std::to_string(size - 1) + " differs from rank 0"));
    EXPECT_THAT(construct(two, odd ? "other" : "weight", 1), HasSubstr("parameter"));
    EXPECT_THAT(construct(two, "weight", odd ? 2 : 1),
                HasSubstr("option backward_passes_per_step"));
    NamedTensors more{{"weight", two}};
    if (odd) more = NamedTensors{{"weight", two}, {"bias", three}};
    std::string message;
    EXPECT_EQ(
        code_of([&] { DistributedSGD optimizer(more, kSgd, {.context = &context}); }, &message),
        Errc::mismatch);
    EXPECT_THAT(message, HasSubstr(" of them, rank 0 has "));
  });
}

TEST_P(Reducer, OptimizersInAnotherOrderAreToldSoAtConstruction) {
  const int size = GetParam();
  if (size == 1) return;
  on_ranks(size, [&](Context& context) {
    auto net = make_net(1);
    const std::vector<std::function<void()>> constructs{
        [&] { DistributedSGD optimizer(*net, kSgd, {.context = &context}); },
        [&] { DistributedOptimizer<torch::optim::Adam> optimizer(*net, {.context = &context}); },
        [&] { ShardedOptimizer<torch::optim::SGD> optimizer(*net, kSgd, {.context = &context}); }};
    for (std::size_t i = 0; i < constructs.size(); ++i) {
      const bool odd = context.rank() == size - 1;
      std::string message;
      EXPECT_EQ(code_of(constructs[odd ? i : (i + 1) % constructs.size()], &message),
                Errc::mismatch);
      EXPECT_THAT(message, HasSubstr("the class, here "));
      EXPECT_THAT(message, HasSubstr("constructs its optimizers in the same order"));
    }
    for (const auto& construct : constructs) construct();
  });
}

TEST_P(Reducer, StepsOfTheWrappedOptimizerAreNamed) {
  on_ranks(GetParam(), [&](Context& context) {
    auto net = make_net(1);
    torch::optim::SGD sgd(net->parameters(), kSgd);
    DistributedOptimizer optimizer(
        sgd, *net, DistributedOptimizerOptions{.wait_in_backward = false, .context = &context});
    const auto pass = [&] { loss_of(net, global_batch(0)).backward(); };
    const std::string cause = "let it call step() of the DistributedOptimizer";
    std::string message;
    pass();
    EXPECT_EQ(code_of([&] { optimizer.zero_grad(); }, &message), Errc::invalid_argument);
    EXPECT_THAT(message, testing::Not(HasSubstr(cause)));
    {
      // This is what sgd.step() does, without reading the gradients.
      const torch::NoGradGuard no_grad;
      net->parameters()[0].data().add_(0.1);
    }
    EXPECT_EQ(code_of([&] { optimizer.zero_grad(); }, &message), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr(cause));
    EXPECT_EQ(code_of(pass, &message), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr(cause));
    EXPECT_EQ(code_of([&] { optimizer.step(); }), Errc::invalid_argument);
  });
  // With the default options such a program trains alike; one warning tells it.
  testing::internal::CaptureStderr();
  on_ranks(GetParam(), [&](Context& context) {
    auto net = make_net(1);
    torch::optim::SGD sgd(net->parameters(), kSgd);
    DistributedOptimizer optimizer(sgd, *net, DistributedOptimizerOptions{.context = &context});
    for (int step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      loss_of(net, global_batch(step + context.rank())).backward();
      sgd.step();
    }
    EXPECT_TRUE(verify(net, context));
  });
  const std::string text = testing::internal::GetCapturedStderr();
  const auto at = text.find("reduced without a step()");
  EXPECT_NE(at, std::string::npos) << text;
  EXPECT_EQ(text.find("reduced without a step()", at + 1), std::string::npos) << text;
}

TEST_P(Reducer, FailuresComeFromStepWhereBackwardDoesNotWait) {
  std::latch all_stepped(GetParam());
  on_ranks(GetParam(), [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), kSgd,
                             {.wait_in_backward = false, .context = &context});
    loss_of(net, global_batch(0)).backward();
    optimizer.step();
    optimizer.zero_grad();
    all_stepped.arrive_and_wait();
    if (context.rank() == 0) context.abort("the test says so");
    EXPECT_NO_THROW(loss_of(net, global_batch(1)).backward());
    const auto code = code_of([&] { optimizer.step(); });
    EXPECT_EQ(code, Errc::aborted);
  });
}

// The ranks that are left need not compute the rest of a pass that they will do again.
TEST(ElasticReducer, APassEndsWhereItsContextHasFailed) {
  const UniqueFd never_readable(::eventfd(0, EFD_CLOEXEC));
  Config config = thread_config(0, 1);
  config.interrupt_fd = never_readable.get();
  const auto context = make_context(config, make_hash_store());
  const torch::Tensor first = torch::ones({2}, torch::requires_grad());
  const torch::Tensor second = torch::ones({2}, torch::requires_grad());
  DistributedSGD optimizer({{"first", first}, {"second", second}}, kSgd,
                           {.context = context.get()});
  const torch::Tensor hidden = 2 * first;
  bool has_gone_on = false;
  hidden.register_hook([&](const torch::Tensor&) { has_gone_on = true; });
  const torch::Tensor loss = (hidden * second).sum();
  context->abort("the test says so");
  const auto has_failed = [&] {
    return code_of([&] { barrier({.context = context.get()}); }) == Errc::aborted;
  };
  const Deadline deadline = Clock::now() + std::chrono::seconds(20);
  while (!has_failed()) ASSERT_LT(Clock::now(), deadline);
  EXPECT_EQ(code_of([&] { loss.backward(); }), Errc::aborted);
  EXPECT_FALSE(has_gone_on);
}

TEST_P(Reducer, ParametersAddedLaterAreFoundAtStep) {
  on_ranks(GetParam(), [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context});
    optimizer.add_param_group({std::vector<torch::Tensor>{torch::ones({2})}});
    std::string message;
    EXPECT_EQ(code_of([&] { optimizer.step(); }, &message), Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("after construction"));
  });
}

}  // namespace
}  // namespace hvd::gradient_reducer_test
