// Tests where gradients lie while they are reduced, and which are copied.
#include <malloc.h>

#include <hvd/core/arena.hpp>

#include "own_compressor.hpp"
#include "training.hpp"

namespace hvd::gradient_memory_test {
namespace {

using namespace test;  // NOLINT: a test
using DistributedSGD = DistributedOptimizer<torch::optim::SGD>;

const auto kSgd = torch::optim::SGDOptions(0.1).momentum(0.9);
constexpr int kSteps = 3;

bool in_arena(const Context& context, const torch::Tensor& tensor) {
  return context.arena()->contains(tensor.data_ptr(), tensor.nbytes());
}

class GradientMemoryAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GradientMemoryAt, testing::Values(2, 3));

struct Seen {
  GradientCounters counters;
  bool all_in_arena = true;
};

/// Trains on every rank and records what each rank saw.
void train(int ranks, GradientMemory memory, bool set_to_none,
           const std::function<void(Context&, const Seen&)>& look) {
  on_ranks(ranks, [&](Context& context) {
    auto net = make_net(1);
    DistributedSGD optimizer(net->named_parameters(), kSgd,
                             {.memory = memory, .context = &context});
    Seen seen;
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad(set_to_none);
      loss_of(net, global_batch(step).of_rank(context.rank(), context.size())).backward();
      optimizer.step();
      for (const auto& parameter : net->parameters()) {
        seen.all_in_arena = seen.all_in_arena && in_arena(context, parameter.grad());
      }
    }
    seen.counters = optimizer.gradient_counters();
    look(context, seen);
  });
}

constexpr std::uint64_t kParameters = 4;

TEST_P(GradientMemoryAt, BornInTheArenaNothingIsCopied) {
  for (const bool set_to_none : {true, false}) {
    train(GetParam(), GradientMemory::born_shared, set_to_none, [](Context&, const Seen& seen) {
      EXPECT_EQ(seen.counters.copied, 0U);
      EXPECT_EQ(seen.counters.in_place, kSteps * kParameters);
      EXPECT_TRUE(seen.all_in_arena);
    });
  }
}

TEST_P(GradientMemoryAt, CopiedThereOncePerBackwardPass) {
  train(GetParam(), GradientMemory::copied_shared, true, [](Context&, const Seen& seen) {
    EXPECT_EQ(seen.counters.copied, kSteps * kParameters);
    EXPECT_GT(seen.counters.copied_bytes, 0U);
    EXPECT_TRUE(seen.all_in_arena);
  });
  train(GetParam(), GradientMemory::copied_shared, false, [](Context&, const Seen& seen) {
    EXPECT_EQ(seen.counters.copied, kParameters) << "zeroed gradients stay in the arena";
    EXPECT_TRUE(seen.all_in_arena);
  });
}

TEST_P(GradientMemoryAt, ZeroedGradientsOfAParallelModelStayInTheArena) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    DistributedDataParallel parallel(
        net, {.memory = GradientMemory::copied_shared, .context = &context});
    for (int step = 0; step < kSteps; ++step) {
      net->zero_grad(/*set_to_none=*/false);
      loss_of(net, global_batch(step).of_rank(context.rank(), context.size())).backward();
    }
    EXPECT_EQ(parallel.gradient_counters().copied, kParameters);
  });
}

TEST_P(GradientMemoryAt, AsTheyAreNothingIsCopiedOrMoved) {
  train(GetParam(), GradientMemory::as_is, true, [](Context& context, const Seen& seen) {
    EXPECT_EQ(seen.counters.copied, 0U);
    EXPECT_FALSE(seen.all_in_arena);
    EXPECT_EQ(context.arena()->used(), 0U);
  });
}

TEST(GradientMemory, MallocKeepsLargeBlocksThatAreFreed) {
  constexpr std::int64_t kBytes = std::int64_t{24} << 20;
  train(2, GradientMemory::born_shared, true, [](Context&, const Seen&) {});
  const auto mapped = ::mallinfo2().hblks;
  torch::Tensor block = torch::empty({kBytes}, torch::kUInt8);
  EXPECT_EQ(::mallinfo2().hblks, mapped) << "the block was mapped";
  block.reset();
  EXPECT_GE(::mallinfo2().fordblks, static_cast<std::size_t>(kBytes)) << "its pages were returned";
}

TEST_P(GradientMemoryAt, GradientsThatShareMemoryAreParted) {
  on_ranks(GetParam(), [](Context& context) {
    const auto leaf = torch::TensorOptions().requires_grad(true);
    const auto p = torch::ones({2, 3}, leaf);
    const auto q = torch::ones({3, 2}, leaf);
    const auto r = torch::ones({6}, leaf);
    DistributedSGD optimizer(NamedTensors{{"p", p}, {"q", q}, {"r", r}}, kSgd,
                             {.op = ReduceOp::sum, .context = &context});
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      // Autograd returns two views of one tensor for p and q.
      (static_cast<double>(context.rank() + 1) * (p.view(-1) + q.view(-1) + r)).sum().backward();
      EXPECT_FALSE(p.grad().is_alias_of(q.grad()));
      EXPECT_FALSE(p.grad().is_alias_of(r.grad()));
      optimizer.synchronize();
      const double sum = context.size() * (context.size() + 1) / 2.0;
      for (const auto& parameter : {p, q, r}) {
        EXPECT_TRUE(torch::equal(parameter.grad(), torch::full(parameter.sizes(), sum)));
      }
      const auto skip = optimizer.skip_synchronize();
      optimizer.step();
    }
  });
}

/// Gives each parameter a gradient, and returns what the program keeps: these gradients, or the
/// flat buffer that all of them are views of.
std::vector<torch::Tensor> kept_gradients(torch::nn::Sequential& net, bool is_flat) {
  std::vector<torch::Tensor> kept;
  std::int64_t elements = 0;
  for (auto& parameter : net->parameters()) {
    parameter.mutable_grad() = torch::zeros_like(parameter);
    kept.push_back(parameter.grad());
    elements += parameter.numel();
  }
  if (!is_flat) return kept;
  const torch::Tensor flat = torch::zeros({elements});
  std::int64_t begin = 0;
  for (auto& parameter : net->parameters()) {
    parameter.mutable_grad() = flat.narrow(0, begin, parameter.numel()).view_as(parameter);
    begin += parameter.numel();
  }
  return {flat};
}

/// Zeroes and clips gradients only where the program keeps them.
void train_with_kept_gradients(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer,
                               bool is_flat, bool clips, int rank, int ranks) {
  const std::vector<torch::Tensor> kept = kept_gradients(net, is_flat);
  for (int step = 0; step < 2 * kSteps; ++step) {
    for (const torch::Tensor& each : kept) each.zero_();
    loss_of(net, global_batch(step).of_rank(rank, ranks)).backward();
    for (const torch::Tensor& each : kept) {
      if (clips) each.clamp_(-0.02, 0.02);
    }
    optimizer.step();
  }
}

TEST_P(GradientMemoryAt, WhatTheProgramKeepsIsReducedThere) {
  const int ranks = GetParam();
  const std::vector<DistributedOptimizerOptions> ways{{},
                                                      {.memory = GradientMemory::copied_shared},
                                                      {.memory = GradientMemory::as_is},
                                                      {.compressor = std::make_shared<Averages>()},
                                                      {.step_in_backward = true}};
  for (const DistributedOptimizerOptions& way : ways) {
    for (const bool is_flat : {false, true}) {
      // With step_in_backward there is nothing to clip after the backward pass.
      const bool clips = !way.step_in_backward;
      auto reference = make_net(1);
      torch::optim::SGD alone(reference->parameters(), kSgd);
      train_with_kept_gradients(reference, alone, is_flat, clips, 0, 1);
      auto start = make_net(1);
      Outcomes of_optimizer(ranks);
      Outcomes of_module(ranks);
      on_ranks(ranks, [&](Context& context) {
        const int rank = context.rank();
        DistributedOptimizerOptions options = way;
        options.context = &context;
        {
          auto net = make_net(1);
          DistributedSGD optimizer(net->named_parameters(), kSgd, options);
          train_with_kept_gradients(net, optimizer, is_flat, clips, rank, ranks);
          of_optimizer.set(rank, net);
        }
        if (way.step_in_backward) return;
        auto net = make_net(1);
        DistributedDataParallel parallel(net, options);
        torch::optim::SGD sgd(net->parameters(), kSgd);
        train_with_kept_gradients(net, sgd, is_flat, clips, rank, ranks);
        of_module.set(rank, net);
      });
      of_optimizer.expect(values_of(reference), values_of(start));
      if (!way.step_in_backward) of_module.expect(values_of(reference), values_of(start));
    }
  }
}

// A pass does not end when an elastic job loses a rank in it. The program then makes a new
// optimizer.
TEST_P(GradientMemoryAt, WhatTheProgramKeepsIsTheGradientAfterAPassThatDoesNotEnd) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    const auto kept = kept_gradients(net, false);
    {
      DistributedSGD optimizer(net->named_parameters(), kSgd,
                               {.wait_in_backward = false, .context = &context});
      loss_of(net, global_batch(0)).backward();
    }
    for (std::size_t i = 0; i < kept.size(); ++i) {
      EXPECT_TRUE(net->parameters()[i].grad().is_same(kept[i]));
    }
  });
}

TEST_P(GradientMemoryAt, OtherStridesAreReducedAsTheyLie) {
  on_ranks(GetParam(), [](Context& context) {
    torch::nn::Conv2d conv(torch::nn::Conv2dOptions(4, 6, 3));
    {
      const torch::NoGradGuard no_grad;
      conv->weight.set_data(conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
      for (auto& parameter : conv->parameters()) parameter.fill_(0.01);
    }
    DistributedSGD optimizer(conv->named_parameters(), kSgd, {.context = &context});
    const auto images = [&](int rank) { return normal({2, 4, 5, 5}, 10 + std::uint64_t(rank)); };
    optimizer.zero_grad();
    conv(images(context.rank())).square().sum().backward();
    optimizer.synchronize();
    const torch::Tensor reduced = conv->weight.grad().clone();
    {
      const auto skip = optimizer.skip_synchronize();
      const auto quiet = optimizer.no_sync();
      torch::Tensor sum = torch::zeros_like(reduced);
      for (int rank = 0; rank < context.size(); ++rank) {
        conv->zero_grad();
        conv(images(rank)).square().sum().backward();
        sum += conv->weight.grad();
      }
      EXPECT_LT((reduced - sum / context.size()).abs().max().item<double>(), 1e-3);
      EXPECT_GT(reduced.abs().max().item<double>(), 0.1);
    }
  });
}

TEST_P(GradientMemoryAt, OutlivesTheOptimizerAndTheContext) {
  std::vector<torch::nn::Sequential> nets;
  for (int rank = 0; rank < GetParam(); ++rank) nets.push_back(make_net(1));
  on_ranks(GetParam(), [&](Context& context) {
    auto& net = nets[static_cast<std::size_t>(context.rank())];
    DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context});
    loss_of(net, global_batch(0)).backward();
    optimizer.step();
    EXPECT_TRUE(in_arena(context, net->parameters().front().grad()));
  });
  for (auto& net : nets) {
    for (auto& parameter : net->parameters()) {
      EXPECT_TRUE(torch::isfinite(parameter.grad()).all().item<bool>());
      parameter.mutable_grad().reset();
    }
  }
}

TEST_P(GradientMemoryAt, LeavesOtherMemoryAlone) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    {
      DistributedSGD optimizer(net->named_parameters(), kSgd, {.context = &context});
      const torch::Tensor same_size = torch::empty({8, kFeatures});
      EXPECT_FALSE(in_arena(context, same_size)) << "outside of a backward pass";
      loss_of(net, global_batch(0)).backward();
      optimizer.step();
    }
    net->zero_grad();
    EXPECT_EQ(context.arena()->used(), 0U);
    loss_of(net, global_batch(0)).backward();
    EXPECT_EQ(context.arena()->used(), 0U) << "nothing is born there without an optimizer";
  });
}

}  // namespace
}  // namespace hvd::gradient_memory_test
