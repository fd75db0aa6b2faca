// Compares with LibTorch's batch normalization of the concatenated batches of all ranks.
#include <gmock/gmock.h>

#include "job.hpp"

namespace hvd {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
using Options = torch::nn::BatchNormOptions;

constexpr std::int64_t kChannels = 3;

class SyncNorm : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SyncNorm, testing::Values(1, 2, 3, 4));

/// Rank 1 has no rows.
std::int64_t rows_of(int rank) { return rank == 1 ? 0 : rank + 2; }

/// Returns examples of [C], [C, L], [C, H, W] or [C, D, H, W], neither centred nor equally
/// distributed.
torch::Tensor batch_of(int rank, std::int64_t dimensions, torch::ScalarType type, int step = 0) {
  std::vector<std::int64_t> shape{rows_of(rank), kChannels};
  for (std::int64_t i = 2; i < dimensions; ++i) shape.push_back(i);
  const auto seed = static_cast<std::uint64_t>(100 * step + rank + 1);
  return (normal(shape, seed, 1 + rank) + 0.5 * rank + step).to(type);
}

torch::Tensor weights_like(const torch::Tensor& result, int rank) {
  return normal(result.sizes(), static_cast<std::uint64_t>(rank + 50)).to(result.scalar_type());
}

struct Reference {
  Tensors results;    ///< by rank
  Tensors gradients;  ///< of the inputs, by rank
};

template <class BatchNorm>
Reference reference(BatchNorm& norm, const std::vector<int>& ranks, std::int64_t dimensions,
                    torch::ScalarType type, int step) {
  Tensors inputs;
  for (const int rank : ranks) {
    inputs.push_back(batch_of(rank, dimensions, type, step).requires_grad_());
  }
  std::vector<std::int64_t> rows;
  for (const auto& input : inputs) rows.push_back(input.size(0));
  Reference wanted;
  wanted.results = norm(torch::cat(inputs)).split_with_sizes(rows);
  torch::Tensor loss = torch::zeros({}, type);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    loss = loss + (wanted.results[i] * weights_like(wanted.results[i], ranks[i])).sum();
  }
  loss.backward();
  for (const auto& input : inputs) wanted.gradients.push_back(input.grad());
  return wanted;
}

void expect_close(const torch::Tensor& actual, const torch::Tensor& wanted, double near,
                  const char* what) {
  ASSERT_EQ(actual.sizes(), wanted.sizes()) << what;
  EXPECT_EQ(actual.scalar_type(), wanted.scalar_type()) << what;
  EXPECT_TRUE(torch::allclose(actual, wanted, near, near))
      << what << "\nis " << actual << "\nnot " << wanted;
}

template <class BatchNorm>
void check(const Member& member, bool in_half, std::int64_t dimensions, torch::ScalarType type,
           const Options& options, double near) {
  Context& context = member.context;
  const std::vector<int> ranks = member.ranks(in_half);
  std::int64_t rows = 0;
  for (const int rank : ranks) rows += rows_of(rank);
  if (rows < 2) return;  // the set {1}
  const auto place = static_cast<std::size_t>(
      std::lower_bound(ranks.begin(), ranks.end(), context.rank()) - ranks.begin());

  BatchNorm serial(options);
  SyncBatchNorm norm(options, SyncBatchNormScope{in_half ? member.half.id : 0, &context});
  serial->to(type);
  norm->to(type);
  if (options.affine()) {
    const torch::NoGradGuard no_grad;
    for (const torch::Tensor& weight : {serial->weight, norm->weight}) {
      weight.copy_(normal({kChannels}, 77));
    }
    for (const torch::Tensor& bias : {serial->bias, norm->bias}) {
      bias.copy_(normal({kChannels}, 78));
    }
  }
  for (int step = 0; step < 2; ++step) {
    serial->zero_grad();
    norm->zero_grad();
    const Reference wanted = reference(serial, ranks, dimensions, type, step);
    const torch::Tensor input = batch_of(context.rank(), dimensions, type, step).requires_grad_();
    const torch::Tensor kept = input.detach().clone();
    const torch::Tensor result = norm(input);
    expect_close(result, wanted.results[place], near, "result");
    (result * weights_like(result, context.rank())).sum().backward();
    expect_close(input.grad(), wanted.gradients[place], near, "gradient of the input");
    EXPECT_TRUE(equal_bits(input.detach(), kept)) << "the input was changed";
    if (options.affine()) {  // local: their sum is the gradient of the whole
      const AllreduceOptions sum{
          .op = ReduceOp::sum, .process_set = in_half ? member.half.id : 0, .context = &context};
      expect_close(allreduce(norm->weight.grad(), sum), serial->weight.grad(), 10 * near,
                   "gradient of the weight");
      expect_close(allreduce(norm->bias.grad(), sum), serial->bias.grad(), 10 * near,
                   "gradient of the bias");
    }
    if (options.track_running_stats()) {
      expect_close(norm->running_mean, serial->running_mean, near, "running mean");
      expect_close(norm->running_var, serial->running_var, near, "running variance");
      EXPECT_EQ(norm->num_batches_tracked.template item<std::int64_t>(), step + 1);
    }
  }
  norm->eval();
  serial->eval();
  if (options.track_running_stats()) {  // alone: nothing is sent
    const auto before = context.stats().submitted;
    const torch::Tensor input = batch_of(context.rank(), dimensions, type);
    expect_close(norm(input), serial(input), near, "evaluation");
    EXPECT_EQ(context.stats().submitted, before);
  }
}

TEST_P(SyncNorm, EqualsOneProcessForEveryShapeTypeAndOption) {
  Job job(GetParam());
  job.run([](const Member& member) {
    const Options plain(kChannels);
    check<torch::nn::BatchNorm1d>(member, false, 2, torch::kFloat64, plain, 1e-10);
    check<torch::nn::BatchNorm1d>(member, false, 3, torch::kFloat64, plain, 1e-10);
    check<torch::nn::BatchNorm2d>(member, false, 4, torch::kFloat64, plain, 1e-10);
    check<torch::nn::BatchNorm3d>(member, false, 5, torch::kFloat64, plain, 1e-10);
    check<torch::nn::BatchNorm2d>(member, false, 4, torch::kFloat32, plain, 1e-4);
    check<torch::nn::BatchNorm2d>(member, true, 4, torch::kFloat64, plain, 1e-10);
    for (const auto& options :
         {Options(kChannels).affine(false), Options(kChannels).eps(0.1),
          Options(kChannels).momentum(std::nullopt), Options(kChannels).momentum(0.9),
          Options(kChannels).track_running_stats(false)}) {
      check<torch::nn::BatchNorm1d>(member, false, 3, torch::kFloat64, options, 1e-10);
    }
  });
}

TEST_P(SyncNorm, RunningStatisticsAndResultsAreTheSameBitsOnAllRanks) {
  on_ranks(GetParam(), [](Context& context) {
    SyncBatchNorm norm(Options(kChannels), SyncBatchNormScope{.context = &context});
    for (int step = 0; step < 5; ++step) {
      (void)norm(batch_of(context.rank(), 4, torch::kFloat32, step));
    }
    EXPECT_TRUE(verify(norm, context));
  });
}

TEST_P(SyncNorm, MakesOneExchangeForwardAndOneBackward) {
  on_ranks(GetParam(), [](Context& context) {
    SyncBatchNorm norm(Options(kChannels), SyncBatchNormScope{.context = &context});
    (void)norm(batch_of(context.rank(), 4, torch::kFloat32));  // agrees on names
    const auto before = context.stats().submitted;
    const torch::Tensor result = norm(batch_of(context.rank(), 4, torch::kFloat32));
    EXPECT_EQ(context.stats().submitted, before + 1);
    result.sum().backward();
    EXPECT_EQ(context.stats().submitted, before + 2);
  });
}

TEST_P(SyncNorm, HalfPrecisionIsComputedInSingle) {
  on_ranks(GetParam(), [](Context& context) {
    SyncBatchNorm norm(Options(kChannels), SyncBatchNormScope{.context = &context});
    for (const auto type : {torch::kFloat16, torch::kBFloat16}) {
      const torch::Tensor input =
          batch_of(context.rank(), 4, torch::kFloat32).to(type).requires_grad_();
      const torch::Tensor result = norm(input);
      EXPECT_EQ(result.scalar_type(), type);
      Tensors all;
      std::vector<std::int64_t> rows;
      for (int rank = 0; rank < context.size(); ++rank) {
        all.push_back(batch_of(rank, 4, torch::kFloat32).to(type).to(torch::kFloat32));
        rows.push_back(all.back().size(0));
      }
      torch::nn::BatchNorm2d serial{Options(kChannels)};
      const Tensors wanted = serial(torch::cat(all)).split_with_sizes(rows);
      const double near = type == torch::kFloat16 ? 2e-3 : 2e-2;  // one rounding of the result
      expect_close(result.to(torch::kFloat32), wanted[static_cast<std::size_t>(context.rank())],
                   near, "result");
      (result * result).sum().backward();
      EXPECT_EQ(input.grad().scalar_type(), type);
      EXPECT_TRUE(input.grad().isfinite().all().item<bool>());
    }
  });
}

TEST_P(SyncNorm, WhatCannotBeNormalizedIsATypedError) {
  on_ranks(GetParam(), [](Context& context) {
    SyncBatchNorm norm(Options(kChannels), SyncBatchNormScope{.context = &context});
    std::string message;
    EXPECT_EQ(code_of(
                  [&] {
                    (void)norm(torch::ones({2, kChannels + 1}));
                  },
                  &message),
              Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("[N, 3, …], not [2,4]"));
    EXPECT_EQ(code_of([&] { (void)norm(torch::ones({kChannels})); }), Errc::invalid_argument);
    // Rank 0 has one value and the others none. All ranks notice it, and none waits.
    const torch::Tensor one = torch::ones({context.rank() == 0 ? 1 : 0, kChannels});
    EXPECT_EQ(code_of([&] { (void)norm(one); }), Errc::invalid_argument);
    (void)norm(torch::ones({2, kChannels}));
  });
}

// The statistics have no graph, so a gradient of a gradient would lack a part.
TEST_P(SyncNorm, AGradientOfAGradientIsRefused) {
  on_ranks(GetParam(), [](Context& context) {
    SyncBatchNorm norm(Options(kChannels), SyncBatchNormScope{.context = &context});
    const torch::Tensor input = torch::rand({2, kChannels}, torch::requires_grad());
    const torch::Tensor loss = norm(input).square().sum();
    EXPECT_EQ(code_of([&] {
                (void)torch::autograd::grad({loss}, {input}, {}, /*retain_graph=*/true,
                                            /*create_graph=*/true);
              }),
              Errc::unsupported);
    EXPECT_TRUE(torch::autograd::grad({loss}, {input})[0].defined());
  });
}

TEST_P(SyncNorm, ConvertReplacesTheLayersOfASequential) {
  on_ranks(GetParam(), [](Context& context) {
    torch::nn::Sequential plain(
        {{"first", torch::nn::AnyModule(torch::nn::Linear(kChannels, kChannels))},
         {"norm", torch::nn::AnyModule(torch::nn::BatchNorm1d(kChannels))}});
    broadcast_parameters(plain, 0, context);
    const torch::nn::Sequential converted = convert_sync_batch_norm(plain, {.context = &context});
    const auto names = [](const torch::nn::Sequential& modules) {
      std::vector<std::string> all;
      for (const auto& [name, tensor] : NamedTensors::of(*modules).items()) all.push_back(name);
      return all;
    };
    EXPECT_EQ(names(converted), names(plain));
    EXPECT_TRUE(converted->named_parameters()["norm.weight"].is_same(
        plain->named_parameters()["norm.weight"]));
    ASSERT_NE(dynamic_cast<SyncBatchNormImpl*>(converted->ptr(1).get()), nullptr);
    // All ranks have the same batch, so the result is that of one rank alone. Buffers are shared.
    const torch::Tensor input = normal({8, kChannels}, 3);
    const torch::Tensor result = torch::nn::Sequential(converted)->forward(input);
    const torch::Tensor mean = plain->named_buffers()["norm.running_mean"];
    EXPECT_GT(mean.abs().max().item<double>(), 0);
    expect_close(result, plain->forward(input), 1e-4, "converted");

    // A copy has its own parameters and works independently.
    auto copy = std::dynamic_pointer_cast<SyncBatchNormImpl>(converted->ptr(1)->clone());
    EXPECT_FALSE(copy->weight.is_alias_of(converted->named_parameters()["norm.weight"]));
    (void)copy->forward(input);
  });
}

/// LibTorch gives no way to replace its layers.
struct Block : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) { return norm(body->forward(input)); }
  torch::nn::Sequential body =
      register_module("body", torch::nn::Sequential(torch::nn::Linear(kChannels, kChannels),
                                                    torch::nn::BatchNorm1d(kChannels)));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(kChannels));
};

TEST_P(SyncNorm, ConvertWarnsOnceOfTheLayersThatItLeaves) {
  testing::internal::CaptureStderr();
  on_ranks(GetParam(), [](Context& context) {
    const torch::nn::Sequential plain(
        {{"block", torch::nn::AnyModule(std::make_shared<Block>())},
         {"norm", torch::nn::AnyModule(torch::nn::BatchNorm1d(kChannels))}});
    auto converted = convert_sync_batch_norm(plain, {.context = &context});
    EXPECT_NE(dynamic_cast<SyncBatchNormImpl*>(converted->ptr(1).get()), nullptr);
    EXPECT_EQ(converted->forward(normal({4, kChannels}, 3)).size(0), 4);
  });
  const std::string text = testing::internal::GetCapturedStderr();
  const std::string warning = "convert_sync_batch_norm: 2 BatchNorm layers inside other modules";
  EXPECT_THAT(text, HasSubstr(warning));
  EXPECT_EQ(text.find(warning), text.rfind(warning)) << text;
  EXPECT_THAT(text, HasSubstr("the first of them block.body.1."));
}

TEST_P(SyncNorm, ConvertLeavesEachModuleInItsMode) {
  on_ranks(GetParam(), [](Context& context) {
    torch::nn::BatchNorm1d frozen(kChannels);
    torch::nn::Dropout dropout(0.5);
    torch::nn::Sequential plain(frozen, dropout);
    frozen->eval();
    const auto converted = convert_sync_batch_norm(plain, {.context = &context});
    EXPECT_FALSE(converted->ptr(0)->is_training());
    EXPECT_TRUE(converted->ptr(1)->is_training());
    EXPECT_TRUE(converted->is_training());

    plain->eval();
    dropout->train();
    EXPECT_FALSE(convert_sync_batch_norm(plain, {.context = &context})->is_training());
    EXPECT_TRUE(dropout->is_training());
  });
}

/// Limits the time for which ranks wait for each other when they send different names.
Config config_of_threads() {
  Config config = thread_config(0, 1);
  config.stall_abort = std::chrono::seconds(20);
  return config;
}

/// Trains on the default context of the thread.
void pass_through(SyncBatchNorm& norm) {
  norm(batch_of(rank(), 4, torch::kFloat32).requires_grad_()).sum().backward();
}

TEST(SyncNormOverContexts, ALayerOfAnEarlierContextMeetsNewOnes) {
  SyncBatchNorm kept{Options(kChannels)};
  for (int generation = 0; generation < 3; ++generation) {
    const auto body = [&](Context& context) {
      SyncBatchNorm made{Options(kChannels)};
      // A rank that has stayed may have any place among the others.
      SyncBatchNorm& norm = context.rank() == generation ? kept : made;
      for (int step = 0; step < 2; ++step) pass_through(norm);
    };
    threads(3, body, config_of_threads());
  }
}

TEST(SyncNormOverContexts, ABackwardPassAfterItsContextIsAnError) {
  SyncBatchNorm norm{Options(kChannels)};
  torch::Tensor result;
  const auto expect_error = [&] {
    std::string message;
    EXPECT_EQ(code_of([&] { result.sum().backward(); }, &message), Errc::not_initialized);
    EXPECT_THAT(message, HasSubstr("SyncBatchNorm: a backward pass came after the context"));
  };
  const auto forward = [&](Context&) {
    result = norm(batch_of(0, 4, torch::kFloat32).requires_grad_());
  };
  threads(1, forward, config_of_threads());
  expect_error();
  threads(1, forward, config_of_threads());
  const auto expect_error_in_the_next = [&](Context&) {
    pass_through(norm);
    expect_error();
  };
  threads(1, expect_error_in_the_next, config_of_threads());
}

}  // namespace
}  // namespace hvd
