// Tests the library's and a user's gradient compressors in case of errors.
#include <limits>
#include <stdexcept>

#include <gmock/gmock.h>

#include "own_compressor.hpp"
#include "training.hpp"

namespace hvd::compressor_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;
using DistributedSGD = DistributedOptimizer<torch::optim::SGD>;

const auto kSgd = torch::optim::SGDOptions(0.1);

class Compressor : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Compressor, testing::Values(1, 2, 3, 4));

TEST_P(Compressor, OfAUserLearnsAndGivesTheSameBitsToAll) {
  on_ranks(GetParam(), [](Context& context) {
    auto net = make_net(1);
    const double begin = loss_of(net, global_batch(0)).item<double>();
    DistributedSGD optimizer(net->named_parameters(), kSgd,
                             {.compressor = std::make_shared<Signs>(), .context = &context});
    for (int step = 0; step < 60; ++step) {
      optimizer.zero_grad();
      loss_of(net, global_batch(0).of_rank(context.rank(), context.size())).backward();
      optimizer.step();
    }
    EXPECT_LT(loss_of(net, global_batch(0)).item<double>(), 0.8 * begin);
    EXPECT_TRUE(verify(*net, context));
  });
}

// Without error feedback only the largest element, or direction, would ever change.
TEST_P(Compressor, SendsInTimeWhatItLeftOut) {
  constexpr int kSteps = 100;
  on_ranks(GetParam(), [](Context& context) {
    for (const auto& compressor : {top_k(0.1, 0), power_sgd(1)}) {
      const torch::Tensor weight = torch::zeros({4, 4}, torch::requires_grad());
      torch::Tensor slope = torch::zeros({4, 4});
      slope[0][0] = 10.0;
      slope[1][1] = 1.0;
      slope[2][2] = 1.0;
      DistributedSGD optimizer(NamedTensors{{"weight", weight}}, torch::optim::SGDOptions(1),
                               {.compressor = compressor, .context = &context});
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        (weight * slope).sum().backward();
        optimizer.step();
      }
      const torch::Tensor missing = (weight.detach() + kSteps * slope).abs();
      EXPECT_LT(missing.max().item<double>(), 0.5 * kSteps)
          << compressor->description() << " moved to " << weight;
    }
  });
}

// In a step in which no rank uses the parameter, the ranks send what they left out earlier, and the
// parameter does not change.
TEST_P(Compressor, AppliesLaterWhatAStepWithoutTheParameterSends) {
  on_ranks(GetParam(), [](Context& context) {
    for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum}) {
      const torch::Tensor weight = torch::zeros({2}, torch::requires_grad());
      const torch::Tensor other = torch::zeros({1}, torch::requires_grad());
      DistributedSGD optimizer(NamedTensors{{"weight", weight}, {"other", other}},
                               torch::optim::SGDOptions(1).momentum(0.5),
                               {.op = op, .compressor = top_k(0.5, 2), .context = &context});
      const double ranks = op == ReduceOp::sum ? context.size() : 1;
      const auto step = [&](bool uses, double first, double second) {
        optimizer.zero_grad();
        torch::Tensor loss = other.sum();
        if (uses) loss = loss + (weight * torch::tensor({first, second})).sum();
        loss.backward();
        optimizer.step();
        return weight.detach() / ranks;
      };
      const auto expect = [&](const torch::Tensor& got, double first, double second) {
        EXPECT_TRUE(torch::allclose(got, torch::tensor({first, second}))) << got;
      };
      expect(step(true, 1, 2), 0, -2);   // The 1 is left out.
      expect(step(false, 0, 0), 0, -2);  // The 1 is sent here.
      expect(step(true, 0, 3), 0, -6);   // Momentum applies half of the 2 again, with the 3.
      expect(step(true, 0, 0), -1, -8);  // The 1 is applied.
      EXPECT_TRUE(verify(NamedTensors{{"weight", weight}}, context));
    }
  });
}

// With zeros, or with a gradient of lower rank, directions of the matrix that is kept vanish.
TEST_P(Compressor, PowerSgdSendsAgainWhatAnEarlierGradientLacked) {
  on_ranks(GetParam(), [](Context& context) {
    constexpr std::int64_t kSide = 8;
    const torch::Tensor first = torch::zeros({kSide, kSide});
    first[0][0] = 3;
    const torch::Tensor both = first.clone();
    both[1][1] = 1;
    const torch::Tensor weight = torch::zeros({kSide, kSide}, torch::requires_grad());
    DistributedSGD optimizer(NamedTensors{{"weight", weight}}, torch::optim::SGDOptions(1),
                             {.compressor = power_sgd(2), .context = &context});
    torch::Tensor sum = torch::zeros({kSide, kSide});
    for (const torch::Tensor& slope : {torch::zeros_like(first), first, both, both}) {
      optimizer.zero_grad();
      (weight * slope).sum().backward();
      optimizer.step();
      sum += slope;
      // The two directions fit into the rank, so nothing is left for later steps.
      EXPECT_LT((weight.detach() + sum).abs().max().item<double>(), 1e-3) << weight;
    }
  });
}

// An infinite element is not kept: all ranks skip the step, and the next one is right.
TEST_P(Compressor, ForgetsAnInfiniteGradient) {
  on_ranks(GetParam(), [](Context& context) {
    for (const auto& compressor : {top_k(0.1, 0), power_sgd(1)}) {
      auto net = make_net(1);
      DistributedSGD optimizer(net->named_parameters(), kSgd,
                               {.compressor = compressor, .context = &context});
      GradScaler scaler({.init_scale = 1024});
      for (int step = 0; step < 8; ++step) {
        optimizer.zero_grad();
        const bool overflows = step == 3;
        const bool here = overflows && context.rank() == context.size() - 1;
        const double factor = here ? std::numeric_limits<double>::infinity() : 1;
        const Batch mine = global_batch(step).of_rank(context.rank(), context.size());
        scaler.scale(loss_of(net, mine) * factor).backward();
        EXPECT_EQ(scaler.step(optimizer), !overflows)
            << compressor->description() << " in step " << step;
        scaler.update();
      }
      for (const torch::Tensor& value : values_of(net)) {
        EXPECT_TRUE(value.isfinite().all().item<bool>()) << compressor->description();
      }
      EXPECT_TRUE(verify(*net, context)) << compressor->description();
    }
  });
}

/// A compressor that fails in the step `fails`, in the function that the test names.
class Fails final : public GradientCompressor {
 public:
  explicit Fails(int fails) : fails_(fails) {}

  class One final : public CompressedGradient {
   public:
    explicit One(int fails) : left_(fails) {}
    void begin(const GradientExchange& exchange, const torch::Tensor& gradient) override {
      average_ = exchange.average(gradient, "all of it");
    }
    bool go_on(const GradientExchange& /*exchange*/, const torch::Tensor& gradient) override {
      gradient.copy_(average_.wait());
      if (left_-- == 0) throw std::runtime_error("the compressor is tired");
      return true;
    }

   private:
    int left_;
    TensorWork average_;
  };

  [[nodiscard]] std::unique_ptr<CompressedGradient> make(
      const torch::Tensor& /*parameter*/) const override {
    return std::make_unique<One>(fails_);
  }
  [[nodiscard]] std::string description() const override { return "fails"; }

 private:
  int fails_;
};

TEST_P(Compressor, ThatThrowsIsHeardFromBackwardAndStepAndTheNextStepIsFine) {
  on_ranks(GetParam(), [](Context& context) {
    for (const bool wait : {true, false}) {
      auto net = make_net(1);
      DistributedSGD optimizer(net->named_parameters(), kSgd,
                               {.compressor = std::make_shared<Fails>(1),
                                .wait_in_backward = wait,
                                .context = &context});
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        const torch::Tensor loss =
            loss_of(net, global_batch(step).of_rank(context.rank(), context.size()));
        if (step == 1 && wait) {
          EXPECT_THROW(loss.backward(), std::runtime_error);
        } else {
          loss.backward();
        }
        if (step == 1) {
          EXPECT_THROW(optimizer.step(), std::runtime_error);
        } else {
          optimizer.step();
        }
      }
      EXPECT_TRUE(verify(*net, context));
    }
  });
}

TEST_P(Compressor, RanksWithOthersAreToldSo) {
  const int size = GetParam();
  if (size == 1) return;
  on_ranks(size, [](Context& context) {
    auto net = make_net(1);
    DistributedOptimizerOptions options{.compressor = top_k(0.5), .context = &context};
    if (context.rank() == 1) options.compressor = std::make_shared<Signs>();
    std::string message;
    EXPECT_EQ(
        code_of([&] { DistributedSGD bad(net->named_parameters(), kSgd, options); }, &message),
        Errc::mismatch);
    EXPECT_THAT(message, HasSubstr("option compressor: rank 1 differs from rank 0"));
  });
}

TEST_P(Compressor, WorksInAProcessSetAndWithSums) {
  const int size = GetParam();
  on_ranks(size, [size](Context& context) {
    std::vector<int> even;
    for (int rank = 0; rank < size; rank += 2) even.push_back(rank);
    const ProcessSet set = context.add_process_set(even);
    if (context.rank() % 2 == 1) return;
    const torch::Tensor weight = torch::zeros({3, 4}, torch::requires_grad());
    DistributedSGD optimizer(NamedTensors{{"weight", weight}}, torch::optim::SGDOptions(1),
                             {.op = ReduceOp::sum,
                              .compressor = std::make_shared<Signs>(),
                              .process_set = set.id,
                              .context = &context});
    (weight * (context.rank() + 1)).sum().backward();  // of one length: nothing is lost
    optimizer.step();
    double sum = 0;
    for (const int rank : even) sum += rank + 1;
    EXPECT_LT((weight.detach() + sum).abs().max().item<double>(), 1e-5);
  });
}

}  // namespace
}  // namespace hvd::compressor_test
