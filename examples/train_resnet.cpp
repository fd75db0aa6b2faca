// Trains ResNet-18 or -50 on Fashion-MNIST, whose images it enlarges and gives three channels.
//
//   hvdrun -np 4 train_resnet --model resnet50 --steps 1000
//
// The lines that make it distributed are marked 1. to 5.
#include <cmath>
#include <cstdio>
#include <exception>
#include <numbers>

#include <CLI/CLI.hpp>
#include <torch/torch.h>

#include <hvd/torch.hpp>

#include "mnist/batches.hpp"
#include "mnist/dataset.hpp"
#include "resnet/model.hpp"

namespace {

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string model = "resnet18";
  int steps = 1000;
  std::size_t batch = 32;  // per rank
  std::int64_t pixels = 32;
  double lr = 0.005;  // multiplied by the number of ranks
};

template <class Model>
void train(Model& model, const Options& options) {
  // 2. Average the gradients. The learning rate grows with the batch of all ranks.
  const double highest = options.lr * hvd::size();
  hvd::DistributedOptimizer<torch::optim::SGD> optimizer(
      model.named_parameters(),
      torch::optim::SGDOptions(highest).momentum(0.9).weight_decay(5e-4).nesterov(true));
  // 3. Take a shard of the data.
  const mnist::Dataset data = mnist::load(options.data, mnist::Split::train);
  mnist::Batches batches(data, hvd::DistributedSampler(static_cast<std::size_t>(data.size())),
                         options.batch);

  for (int step = 0; step < options.steps; ++step) {
    const double rate = highest * (1 + std::cos(std::numbers::pi * step / options.steps)) / 2;
    for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);

    const mnist::Dataset batch = batches.next();
    const torch::Tensor images =
        torch::upsample_bilinear2d(batch.images, {options.pixels, options.pixels}, false)
            .expand({-1, 3, -1, -1});
    optimizer.zero_grad();
    const torch::Tensor loss = torch::cross_entropy_loss(model.forward(images), batch.labels);
    loss.backward();
    optimizer.step();

    if (step % 10 == 0 || step + 1 == options.steps) {
      // 4. Average a loss over the ranks, and print it on one of them.
      const double mean = hvd::average_metric(loss.item<double>(), "loss");
      if (hvd::rank() == 0) std::printf("step %d loss %.4f\n", step, mean);
    }
  }

  // The parameters are equal on all ranks, but the running statistics of BatchNorm are not.
  const hvd::Verification same = hvd::verify(hvd::NamedTensors(model.named_parameters()));
  if (hvd::rank() == 0) {
    std::printf("%s\n",
                same ? "all ranks hold identical parameters" : same.first_difference.c_str());
  }
  // 5. Give all ranks the statistics of rank 0 before the model is tested or saved.
  hvd::broadcast_parameters(model);
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a residual network on Fashion-MNIST");
  app.add_option("--data", options.data)->capture_default_str();
  app.add_option("--model", options.model)->check(CLI::IsMember({"resnet18", "resnet50"}));
  app.add_option("--steps", options.steps)->capture_default_str();
  app.add_option("--batch", options.batch, "Images per rank and step")->capture_default_str();
  app.add_option("--pixels", options.pixels, "Height and width")->capture_default_str();
  app.add_option("--lr", options.lr, "Learning rate, times the ranks")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  hvd::init();  // 1. Join the job.
  if (options.model == "resnet50") {
    train(*resnet::resnet50(10), options);
  } else {
    train(*resnet::resnet18(10), options);
  }
  hvd::shutdown();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_resnet: %s\n", error.what());
  return 1;
}
