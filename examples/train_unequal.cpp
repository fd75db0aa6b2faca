// Trains on batches that differ in size between the ranks, as at the end of each epoch, where the
// last batch is short. Each step takes the mean over all images of all ranks, so any number of
// ranks trains the same model as one process does.
//
//   hvdrun -np 4 train_unequal --epochs 3
//
// The lines that make it distributed are marked 1. to 4.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>
#include <torch/torch.h>

#include <hvd/torch.hpp>

#include "mnist/dataset.hpp"
#include "mnist/model.hpp"

namespace {

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  int epochs = 3;
  std::int64_t batch = 129;    // of all ranks together
  std::int64_t images = 6000;  // leaves a batch of 66
  torch::Dtype dtype = torch::kFloat64;
};

void train(const Options& options) {
  torch::manual_seed(1);  // all ranks shuffle alike
  mnist::Dataset all = mnist::load(options.data, mnist::Split::train, options.images);
  all.images = all.images.to(options.dtype);
  mnist::Net model(/*dropout=*/false);
  model->to(options.dtype);
  // 2. Average the gradients over images.
  hvd::DistributedOptimizer<torch::optim::SGD> optimizer(
      *model, torch::optim::SGDOptions(0.02).momentum(0.9), {.weighted = true});

  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    for (const torch::Tensor& indices : torch::randperm(all.size()).split(options.batch)) {
      // 3. Each rank takes every size-th image. Some ranks get one more than others, or none.
      const mnist::Dataset mine =
          all.pick(indices.slice(0, hvd::rank(), indices.size(0), hvd::size()));
      // 4. The mean counts this rank's gradient once for each of its images.
      optimizer.set_weight(static_cast<double>(mine.size()));
      optimizer.zero_grad();
      torch::nll_loss(model(mine.images), mine.labels).backward();
      optimizer.step();
    }
    const torch::NoGradGuard no_grad;
    const double loss = torch::nll_loss(model(all.images), all.labels).item<double>();
    if (hvd::rank() == 0) std::printf("epoch %d loss %.12f\n", epoch, loss);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains on batches of different sizes");
  app.add_option("--data", options.data)->capture_default_str();
  app.add_option("--epochs", options.epochs)->capture_default_str();
  app.add_option("--batch", options.batch, "Images per step")->capture_default_str();
  app.add_option("--images", options.images)->capture_default_str();
  app.add_flag_callback(
      "--float", [&] { options.dtype = torch::kFloat32; }, "Train in single precision");
  CLI11_PARSE(app, argc, argv);

  hvd::init();  // 1. Join the job.
  train(options);
  hvd::shutdown();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_unequal: %s\n", error.what());
  return 1;
}
