// Trains on ranks with different amounts of data. Ranks that have no more data take part in the
// collectives of the others until the epoch ends.
//
//   hvdrun -np 4 train_uneven --epochs 3
//
// The lines that make it distributed are marked 1. to 5.
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
  std::int64_t batch = 64;     // per rank
  std::int64_t images = 6000;  // on rank 0; rank 1 has a half of it, rank 2 a third, …
};

void train(const Options& options) {
  // Each rank picks its own part, as if it had a file of its own.
  const mnist::Dataset all = mnist::load(options.data, mnist::Split::train);
  const std::int64_t count = options.images / (hvd::rank() + 1);
  const mnist::Dataset mine = all.pick(
      (torch::arange(count) * hvd::size() + hvd::rank()).remainder(all.size()).to(torch::kInt64));
  std::printf("rank %d has %lld images\n", hvd::rank(), static_cast<long long>(count));

  mnist::Net model(/*dropout=*/false);
  // 2. Average the gradients.
  hvd::DistributedOptimizer<torch::optim::SGD> optimizer(
      model->named_parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));

  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    // 3. Take the mean over images, because ranks have different numbers of images.
    hvd::Metric mean_loss("loss");
    for (const torch::Tensor& indices : torch::randperm(count).split(options.batch)) {
      const mnist::Dataset batch = mine.pick(indices);
      optimizer.zero_grad();
      const torch::Tensor loss = torch::nll_loss(model(batch.images), batch.labels);
      loss.backward();
      optimizer.step();
      mean_loss.update(loss.item<double>(), static_cast<double>(batch.size()));
    }
    // 4. This rank has no more data. The others now average over the ranks that still have some.
    const int last = hvd::join({.average_over_contributors = true});
    // 5. The rank that joined last has made every step, so all ranks get its model and momentum.
    hvd::broadcast_parameters(model, last);
    hvd::broadcast_optimizer_state(optimizer, last);

    const double loss = mean_loss.average();
    if (hvd::rank() == 0) std::printf("epoch %d loss %.4f, rank %d was last\n", epoch, loss, last);
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
  CLI::App app("Trains on shards of different sizes");
  app.add_option("--data", options.data)->capture_default_str();
  app.add_option("--epochs", options.epochs)->capture_default_str();
  app.add_option("--batch", options.batch, "Images per rank and step")->capture_default_str();
  app.add_option("--images", options.images, "Images of rank 0")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  hvd::init();  // 1. Join the job.
  train(options);
  hvd::shutdown();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_uneven: %s\n", error.what());
  return 1;
}
