// Tests ranks whose data has ended, and metrics over all ranks.
#include <cmath>
#include <limits>

#include "own_compressor.hpp"
#include "training.hpp"

namespace hvd {
namespace {

using namespace test;  // NOLINT: a test

class UnevenData : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, UnevenData, testing::Values(1, 2, 3, 4));

TEST_P(UnevenData, JoinedRanksCountOrNotAsTheOptionsSay) {
  const int size = GetParam();
  for (const bool contributors : {false, true}) {
    on_ranks(size, [&](Context& context) {
      // Rank r has r + 1 batches.
      for (int batch = 0; batch <= context.rank(); ++batch) {
        const torch::Tensor mean =
            allreduce(torch::full({3}, 6.0F), {.name = "batch", .context = &context});
        const double taking_part = size - batch;
        const double wanted = contributors ? 6.0 : 6.0 * taking_part / size;
        EXPECT_TRUE(torch::allclose(mean, torch::full({3}, static_cast<float>(wanted))))
            << mean << " in batch " << batch;
      }
      EXPECT_EQ(join({.average_over_contributors = contributors, .context = &context}), size - 1);
      // All ranks take part again.
      EXPECT_TRUE(
          torch::equal(allreduce(torch::ones({2}), {.context = &context}), torch::ones({2})));
    });
  }
}

// The ranks have made different numbers of steps then.
TEST_P(UnevenData, TrainingGoesOnAfterAJoin) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    torch::nn::Sequential net = make_net(3);
    torch::nn::Sequential other = make_net(4);
    DistributedOptimizer<torch::optim::SGD> optimizer(net->named_parameters(),
                                                      torch::optim::SGDOptions(0.1).momentum(0.9),
                                                      {.context = &context});
    DistributedDataParallel parallel(other, {.context = &context});
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int step = 0; step < 2 + context.rank(); ++step) {
        optimizer.zero_grad();
        other->zero_grad();
        const Batch batch = global_batch(step).of_rank(context.rank(), size);
        loss_of(net, batch).backward();
        loss_of(other, batch).backward();
        optimizer.step();
        // All ranks make this step, with the momentum of the epoch before.
        if (step == 0) {
          EXPECT_TRUE(verify(net, context)) << "in epoch " << epoch;
        }
      }
      const int last = join({.average_over_contributors = true, .context = &context});
      broadcast_parameters(net, last, context);
      broadcast_optimizer_state(optimizer, last, context);
    }
    EXPECT_TRUE(verify(net, context));
  });
}

// Rank 0 makes its first step when the others have made some.
TEST_P(UnevenData, ARankMayHaveNoDataAtFirst) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    torch::nn::Sequential net = make_net(3);
    torch::nn::Sequential other = make_net(4);
    DistributedOptimizer<torch::optim::SGD> optimizer(
        net->named_parameters(), torch::optim::SGDOptions(0.1), {.context = &context});
    DistributedDataParallel parallel(other, {.context = &context});
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int step = 0; step < 2 * (context.rank() + epoch); ++step) {
        optimizer.zero_grad();
        other->zero_grad();
        const Batch batch = global_batch(step).of_rank(context.rank(), size);
        loss_of(net, batch).backward();
        loss_of(other, batch).backward();
        optimizer.step();
      }
      const int last = join({.context = &context});
      broadcast_parameters(net, last, context);
    }
    EXPECT_TRUE(verify(net, context));
  });
}

// Rank 0 has no data in the first epoch, in which an error on rank 1 alone ends the first step.
TEST_P(UnevenData, AfterAnErrorOnOneRankAllMeetInTheNextEpoch) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    torch::nn::Sequential net = make_net(3);
    int steps = 0;
    const auto fails = [&] { return context.rank() == 1 && steps == 0; };
    DistributedOptimizer<torch::optim::SGD> optimizer(
        net->named_parameters(), torch::optim::SGDOptions(0.1),
        {.compressor = std::make_shared<Faulty>(fails), .context = &context});
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int step = 0; step < (epoch == 0 && context.rank() == 0 ? 0 : 2); ++step) {
        optimizer.zero_grad();
        const Batch batch = global_batch(step).of_rank(context.rank(), size);
        const auto train = [&] {
          loss_of(net, batch).backward();
          optimizer.step();
        };
        EXPECT_EQ(code_of(train), fails() ? std::optional(Errc::internal) : std::nullopt);
        ++steps;
      }
      broadcast_parameters(net, join({.context = &context}), context);
    }
    EXPECT_TRUE(verify(net, context));
  });
}

TEST_P(UnevenData, TheLastToJoinHasTheModelOfAll) {
  const int size = GetParam();
  Outcomes outcomes(size);
  const auto start = [] {
    auto net = make_net(3);
    return values_of(net);
  }();
  on_ranks(size, [&](Context& context) {
    torch::nn::Sequential net = make_net(3);
    DistributedOptimizer<torch::optim::SGD> optimizer(
        net->named_parameters(), torch::optim::SGDOptions(0.1), {.context = &context});
    for (int step = 0; step < 2 + context.rank(); ++step) {
      optimizer.zero_grad();
      loss_of(net, global_batch(step).of_rank(context.rank(), size)).backward();
      optimizer.step();
    }
    broadcast_parameters(net, join({.average_over_contributors = true, .context = &context}),
                         context);
    outcomes.set(context.rank(), net);
  });
  // One process makes each step with the batches of the ranks that still have one.
  torch::nn::Sequential net = make_net(3);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 1 + size; ++step) {
    optimizer.zero_grad();
    const int first = std::max(0, step - 1);
    torch::Tensor loss = torch::zeros({});
    for (int rank = first; rank < size; ++rank) {
      loss = loss + loss_of(net, global_batch(step).of_rank(rank, size)) / (size - first);
    }
    loss.backward();
    optimizer.step();
  }
  outcomes.expect(values_of(net), start);
}

TEST_P(UnevenData, MetricsWeighExamplesNotRanks) {
  const int size = GetParam();
  on_ranks(size, [&](Context& context) {
    EXPECT_DOUBLE_EQ(average_metric(context.rank() + 1, "rank", context), (size + 1) / 2.0);

    Metric loss("loss");
    loss.update(std::numeric_limits<double>::quiet_NaN(), 0);  // the mean of an empty batch
    EXPECT_TRUE(std::isnan(loss.average(context)));
    double sum = 0;
    double weight = 0;
    for (int rank = 0; rank < size; ++rank) {
      for (int batch = 0; batch < rank; ++batch) {  // rank 0 has none
        const double examples = 2 + batch;
        sum += (rank + 10 * batch) * examples;
        weight += examples;
        if (rank == context.rank()) loss.update(rank + 10 * batch, examples);
      }
    }
    if (size > 1) {
      EXPECT_DOUBLE_EQ(loss.average(context), sum / weight);
    }
    loss.reset();
    loss.update(context.rank());
    EXPECT_EQ(loss.local_average(), context.rank());
    EXPECT_DOUBLE_EQ(loss.average(context), (size - 1) / 2.0);
  });
}

}  // namespace
}  // namespace hvd
