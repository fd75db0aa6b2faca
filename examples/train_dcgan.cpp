// Trains a DCGAN (Radford, Metz & Chintala 2015), a generator and a discriminator, on images of
// clothes.
//
//   hvdrun -np 4 train_dcgan --steps 2000 --save drawn.pt
//
// The lines that make it distributed are marked 1. to 6. Any number of ranks trains as one process
// does with the batches of all ranks together.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>
#include <torch/torch.h>

#include <hvd/torch.hpp>

#include "mnist/batches.hpp"
#include "mnist/dataset.hpp"

namespace {

using namespace torch::nn;

constexpr std::int64_t kNoise = 64;
constexpr std::int64_t kWidth = 32;

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  int steps = 2000;
  std::size_t batch = 32;  // per rank
  torch::Dtype dtype = torch::kFloat32;
  std::string save;
};

// 2. Normalise with the statistics of all ranks' batches.
using BatchNorm2d = hvd::SyncBatchNorm;

/// Maps noise [B, kNoise, 1, 1] to images [B, 1, 28, 28] between -1 and 1.
Sequential make_generator() {
  const auto up = [](std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
    return ConvTranspose2d(
        ConvTranspose2dOptions(in, out, kernel).stride(stride).padding(stride - 1).bias(false));
  };
  return Sequential(up(kNoise, 4 * kWidth, 4, 1), BatchNorm2d(4 * kWidth), ReLU(),      // 4x4
                    up(4 * kWidth, 2 * kWidth, 3, 2), BatchNorm2d(2 * kWidth), ReLU(),  // 7x7
                    up(2 * kWidth, kWidth, 4, 2), BatchNorm2d(kWidth), ReLU(),          // 14x14
                    up(kWidth, 1, 4, 2), Tanh());                                       // 28x28
}

/// Maps images to logits [B, 1, 1, 1], which are positive for images that look real.
Sequential make_discriminator() {
  const auto down = [](std::int64_t in, std::int64_t out) {
    return Conv2d(Conv2dOptions(in, out, 4).stride(2).padding(1).bias(false));
  };
  const auto leaky = [] { return LeakyReLU(LeakyReLUOptions().negative_slope(0.2)); };
  return Sequential(down(1, kWidth), leaky(),                                        // 14x14
                    down(kWidth, 2 * kWidth), BatchNorm2d(2 * kWidth), leaky(),      // 7x7
                    down(2 * kWidth, 4 * kWidth), BatchNorm2d(4 * kWidth), leaky(),  // 3x3
                    Conv2d(Conv2dOptions(4 * kWidth, 1, 3).bias(false)));            // 1x1
}

torch::Tensor loss_for(const torch::Tensor& logits, double answer) {
  return torch::binary_cross_entropy_with_logits(logits, torch::full_like(logits, answer));
}

/// Draws the noise of all ranks' batches, alike on all ranks, and returns the rows of this rank.
torch::Tensor draw_noise(std::int64_t batch, torch::Dtype dtype) {
  return torch::randn({batch * hvd::size(), kNoise, 1, 1}, dtype)
      .slice(0, hvd::rank() * batch, (hvd::rank() + 1) * batch);
}

void train(const Options& options) {
  torch::manual_seed(1);  // all ranks draw the same numbers
  Sequential generator = make_generator();
  Sequential discriminator = make_discriminator();
  generator->to(options.dtype);
  discriminator->to(options.dtype);

  // 3. Make two optimizers, in the same order on every rank.
  const auto adam = torch::optim::AdamOptions(2e-4).betas({0.5, 0.999});
  hvd::DistributedOptimizer<torch::optim::Adam> generator_steps(generator->named_parameters(),
                                                                adam);
  hvd::DistributedOptimizer<torch::optim::Adam> discriminator_steps(
      discriminator->named_parameters(), adam);
  // 4. Take a shard of the data.
  mnist::Dataset data = mnist::load(options.data, mnist::Split::train);
  const torch::Tensor darkest = data.images.min();
  data.images = ((data.images - darkest) / (data.images.max() - darkest) * 2 - 1).to(options.dtype);
  mnist::Batches batches(data, hvd::DistributedSampler(static_cast<std::size_t>(data.size())),
                         options.batch);

  for (int step = 0; step < options.steps; ++step) {
    const torch::Tensor real = batches.next().images;
    // 5. Take a share of the noise.
    const torch::Tensor drawn = generator->forward(draw_noise(real.size(0), options.dtype));

    discriminator_steps.zero_grad();
    const torch::Tensor told = loss_for(discriminator->forward(real), 1) +
                               loss_for(discriminator->forward(drawn.detach()), 0);
    told.backward();
    discriminator_steps.step();

    generator_steps.zero_grad();
    const torch::Tensor fooled = loss_for(discriminator->forward(drawn), 1);
    {
      // 6. This pass also gives the discriminator gradients, which are not used, so do not send
      // them.
      const auto pause = discriminator_steps.no_sync();
      fooled.backward();
    }
    generator_steps.step();

    if (step % 10 == 0 || step + 1 == options.steps) {
      const double d = hvd::average_metric(told.item<double>(), "discriminator");
      const double g = hvd::average_metric(fooled.item<double>(), "generator");
      if (hvd::rank() == 0) std::printf("step %d loss %.12f generator %.12f\n", step, d, g);
    }
  }

  for (const Sequential& model : {generator, discriminator}) {
    const hvd::Verification same = hvd::verify(hvd::NamedTensors(model->named_parameters()));
    if (hvd::rank() == 0) {
      std::printf("%s\n",
                  same ? "all ranks hold identical parameters" : same.first_difference.c_str());
    }
  }
  if (hvd::rank() == 0 && !options.save.empty()) {
    const torch::NoGradGuard no_grad;
    generator->eval();  // in training mode SyncBatchNorm would wait for the other ranks
    torch::save(generator->forward(torch::randn({64, kNoise, 1, 1}, options.dtype)), options.save);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a DCGAN on Fashion-MNIST");
  app.add_option("--data", options.data)->capture_default_str();
  app.add_option("--steps", options.steps)->capture_default_str();
  app.add_option("--batch", options.batch, "Images per rank and step")->capture_default_str();
  app.add_flag_callback(
      "--double", [&] { options.dtype = torch::kFloat64; }, "Train in double precision");
  app.add_option("--save", options.save, "Write 64 drawn images here, as a tensor");
  CLI11_PARSE(app, argc, argv);

  hvd::init();  // 1. Join the job.
  train(options);
  hvd::shutdown();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_dcgan: %s\n", error.what());
  return 1;
}
