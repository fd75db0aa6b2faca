// Tests the training of complex parameters: ranks train as one process does, imaginary parts too.
#include <sstream>

#include <gmock/gmock.h>

#include <hvd/torch/sharded_optimizer.hpp>

#include "training.hpp"

namespace hvd::complex_test {
namespace {

using namespace test;  // NOLINT: a test
namespace optim = torch::optim;

constexpr int kSteps = 6;
constexpr std::int64_t kPoints = 10;
constexpr std::int64_t kModes = kPoints / 2 + 1;
constexpr double kMaxNorm = 0.05;  // less than the gradients' norm, so that clipping scales them
constexpr double kNear = 1e-9;
const auto kSgd = optim::SGDOptions(0.5).momentum(0.9).weight_decay(0.01);

torch::Tensor doubles(torch::IntArrayRef shape, std::uint64_t seed) {
  return normal(shape, seed).to(torch::kFloat64);
}

/// Multiplies spectra by complex numbers, twice, with a real layer in between. Autograd marks the
/// gradient of `first` as conjugated on ranks with an even number, and conjugates it on the others.
struct FourierNet : torch::nn::Module {
  explicit FourierNet(std::uint64_t seed) {
    const auto complex = [&seed] {
      return torch::complex(doubles({kModes}, seed + 1), doubles({kModes}, seed + 2));
    };
    first = register_parameter("first", complex());
    ++seed;
    bias = register_parameter("bias", doubles({kPoints}, seed));
    second = register_parameter("second", complex());
  }
  [[nodiscard]] torch::Tensor forward(const torch::Tensor& signals, int rank) const {
    const torch::Tensor conjugate = rank % 2 == 0 ? first.conj() : first.conj_physical();
    const auto filtered = [](const torch::Tensor& values, const torch::Tensor& filter) {
      return torch::fft::irfft(torch::fft::rfft(values) * filter, kPoints);
    };
    return filtered(torch::tanh(filtered(signals, conjugate) + bias), second);
  }
  /// Returns the loss of this rank's part of a batch.
  [[nodiscard]] torch::Tensor loss(int step, int rank, int size) const {
    const auto seed = static_cast<std::uint64_t>(100 + step);
    const Batch whole{doubles({kGlobalBatch, kPoints}, seed),
                      doubles({kGlobalBatch, kPoints}, seed + 50)};
    const Batch mine = whole.of_rank(rank, size);
    return torch::mse_loss(forward(mine.inputs, rank), mine.targets);
  }
  [[nodiscard]] std::vector<torch::Tensor> values() const {
    std::vector<torch::Tensor> values;
    for (const auto& parameter : parameters()) values.push_back(parameter.detach().clone());
    return values;
  }

  torch::Tensor first;
  torch::Tensor bias;
  torch::Tensor second;
};

void clip(const FourierNet& net) {
  EXPECT_GT(torch::nn::utils::clip_grad_norm_(net.parameters(), kMaxNorm), kMaxNorm);
}

void train(const FourierNet& net, optim::Optimizer& optimizer, int begin, int end, int rank = 0,
           int size = 1, const std::function<void()>& clip_gradients = nullptr) {
  for (int step = begin; step < end; ++step) {
    optimizer.zero_grad();
    net.loss(step, rank, size).backward();
    if (clip_gradients) {
      clip_gradients();
    } else {
      clip(net);
    }
    optimizer.step();
  }
}

class Complex : public testing::TestWithParam<int> {
 protected:
  /// Gives `body` a net on each rank, which it trains, and compares the nets with that of one
  /// process.
  static void expect_equal_training(const std::function<void(Context&, FourierNet&)>& body) {
    const FourierNet reference(1);
    const auto start = reference.values();
    optim::SGD sgd(reference.parameters(), kSgd);
    train(reference, sgd, 0, kSteps);
    const auto wanted = reference.values();
    for (const std::size_t filter : {std::size_t{0}, std::size_t{2}}) {
      const torch::Tensor learnt = wanted[filter] - start[filter];
      EXPECT_GT(torch::imag(learnt).abs().max().item<double>(), 1e-2);
    }
    on_ranks(GetParam(), [&](Context& context) {
      FourierNet net(context.rank() == 0 ? 1 : 7);  // the constructors below make them equal
      body(context, net);
      EXPECT_LT(largest_difference(net.values(), wanted), kNear);
      EXPECT_TRUE(verify(net, context));
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Complex, testing::Values(1, 2, 3));

TEST_P(Complex, DistributedDataParallelEqualsOneProcess) {
  expect_equal_training([](Context& context, FourierNet& net) {
    const DistributedDataParallel parallel(net, {.context = &context});
    optim::SGD sgd(net.parameters(), kSgd);
    train(net, sgd, 0, kSteps / 2, context.rank(), context.size());
    // Another rank than 0 loses its momentum and gets that of rank 0.
    if (context.rank() != 0) sgd.state().clear();
    broadcast_optimizer_state(sgd, 0, context);
    EXPECT_TRUE(verify(sgd, context));
    train(net, sgd, kSteps / 2, kSteps, context.rank(), context.size());
  });
}

TEST_P(Complex, DistributedOptimizerEqualsOneProcess) {
  expect_equal_training([](Context& context, FourierNet& net) {
    DistributedOptimizer<optim::SGD> optimizer(net, kSgd, {.context = &context});
    train(net, optimizer, 0, kSteps, context.rank(), context.size());
  });
}

TEST_P(Complex, ShardedOptimizerEqualsOneProcessAndItsStateIsLoaded) {
  for (const std::int64_t bytes : {40, 1 << 20}) {
    std::string saved;
    expect_equal_training([&](Context& context, FourierNet& net) {
      const ShardedOptimizerOptions options{.bucket_bytes = bytes, .context = &context};
      const auto train_part = [&](ShardedOptimizer<optim::SGD>& optimizer, int begin, int end) {
        train(net, optimizer, begin, end, context.rank(), context.size(),
              [&] { EXPECT_GT(optimizer.clip_grad_norm(kMaxNorm), kMaxNorm); });
      };
      {
        ShardedOptimizer<optim::SGD> optimizer(net, kSgd, options);
        train_part(optimizer, 0, kSteps / 2);
        torch::serialize::OutputArchive archive;
        optimizer.save(archive);
        std::ostringstream stream;
        if (context.rank() == 0) archive.save_to(stream);
        if (context.rank() == 0) saved = stream.str();
        barrier({.context = &context});
      }
      ShardedOptimizer<optim::SGD> optimizer(net, kSgd, options);
      std::istringstream stream(saved);
      torch::serialize::InputArchive archive;
      archive.load_from(stream);
      optimizer.load(archive);
      train_part(optimizer, kSteps / 2, kSteps);
    });
  }
}

TEST(ComplexGradients, AreNotCompressed) {
  const torch::Tensor parameter = torch::zeros({64, 64}, torch::kComplexFloat);
  for (const auto& compressor : {top_k(0.1), power_sgd(1)}) {
    EXPECT_NE(compressor->make(torch::real(parameter)), nullptr);
    EXPECT_EQ(compressor->make(parameter), nullptr);
  }
}

}  // namespace
}  // namespace hvd::complex_test
