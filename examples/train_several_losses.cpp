// Trains a network that compresses images, draws them again and classifies them. It has two losses
// with a backward pass each, two optimizers, and clips in between. The result is that of one
// process with the batches of all ranks together.
//
//   hvdrun -np 4 train_several_losses --steps 1000
//
// The lines that make it distributed are marked 1. to 4.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>
#include <torch/torch.h>

#include <hvd/torch.hpp>

#include "mnist/batches.hpp"
#include "mnist/dataset.hpp"

namespace {

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  int steps = 1000;
  std::size_t batch = 32;  // images per rank
  torch::Dtype dtype = torch::kFloat64;
};

constexpr std::int64_t kPixels = 784;
constexpr std::int64_t kCode = 32;

struct NetImpl : torch::nn::Module {
  torch::nn::Linear encoder{register_module("encoder", torch::nn::Linear(kPixels, kCode))};
  torch::nn::Linear decoder{register_module("decoder", torch::nn::Linear(kCode, kPixels))};
  torch::nn::Linear classifier{register_module("classifier", torch::nn::Linear(kCode, 10))};
};
TORCH_MODULE(Net);

void train(const Options& options) {
  Net model;
  model->to(options.dtype);
  // 2. Average the gradients of each backward pass. The optimizers stay as they are.
  hvd::DistributedDataParallel parallel(model);
  torch::optim::Adam drawing({model->encoder->parameters(), model->decoder->parameters()},
                             torch::optim::AdamOptions(1e-3));
  torch::optim::SGD classifying(model->classifier->parameters(), 0.05);
  // 3. Take a shard of the data.
  const mnist::Dataset data = mnist::load(options.data, mnist::Split::train);
  mnist::Batches batches(data, hvd::DistributedSampler(static_cast<std::size_t>(data.size())),
                         options.batch);

  for (int step = 0; step < options.steps; ++step) {
    const mnist::Dataset batch = batches.next();
    const torch::Tensor images = batch.images.to(options.dtype).flatten(1);
    model->zero_grad();

    const torch::Tensor code = torch::tanh(model->encoder(images));
    const torch::Tensor difference = torch::mse_loss(model->decoder(code), images);
    difference.backward({}, /*retain_graph=*/true);
    // The gradients of the first pass are averaged and clipped before those of the second are
    // added.
    torch::nn::utils::clip_grad_norm_(model->encoder->parameters(), 0.1);
    const torch::Tensor loss = torch::cross_entropy_loss(model->classifier(code), batch.labels);
    loss.backward();

    drawing.step();
    classifying.step();

    if (step % 10 == 0 || step + 1 == options.steps) {
      const double mean = hvd::average_metric(loss.item<double>(), "loss");
      const double drawn = hvd::average_metric(difference.item<double>(), "difference");
      // 4. Let one rank print.
      if (hvd::rank() == 0) std::printf("step %d loss %.12f difference %.12f\n", step, mean, drawn);
    }
  }

  const hvd::Verification same = hvd::verify(model);
  if (hvd::rank() == 0) {
    std::printf("%s\n",
                same ? "all ranks hold identical parameters" : same.first_difference.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains with several losses and backward passes per step");
  app.add_option("--data", options.data)->capture_default_str();
  app.add_option("--steps", options.steps)->capture_default_str();
  app.add_option("--batch", options.batch, "Images per rank and step")->capture_default_str();
  app.add_flag_callback(
      "--float", [&] { options.dtype = torch::kFloat32; }, "Train in single precision");
  CLI11_PARSE(app, argc, argv);

  hvd::init();            // 1. Join the job.
  torch::manual_seed(1);  // for any number of ranks training begins with the same model
  train(options);
  hvd::shutdown();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_several_losses: %s\n", error.what());
  return 1;
}
