// Trains with ranks that are threads of one process, and so needs no launcher.
//
//   train_threads --threads 4
//
// The threads read one copy of the data. The lines that make it distributed are marked 1. to 3.
#include <cstdio>
#include <exception>
#include <vector>

#include <CLI/CLI.hpp>
#include <torch/torch.h>

#include <hvd/torch.hpp>

#include "mnist/batches.hpp"
#include "mnist/dataset.hpp"
#include "mnist/model.hpp"

namespace {

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  int threads = 2;
  int steps = 1000;
  std::size_t batch = 60;  // images per step, of all threads together
  torch::Dtype dtype = torch::kFloat64;
};

void train(const Options& options, const mnist::Dataset& data, mnist::Net& model) {
  // 2. Average the gradients, and begin with the model of rank 0.
  const hvd::DistributedDataParallel parallel(model);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  // 3. Take a shard of the data.
  const auto size = static_cast<std::size_t>(data.size());
  mnist::Batches batches(data, hvd::DistributedSampler(size),
                         options.batch / static_cast<std::size_t>(hvd::size()));

  for (int step = 0; step < options.steps; ++step) {
    const mnist::Dataset batch = batches.next();
    optimizer.zero_grad();
    const torch::Tensor loss = torch::nll_loss(model(batch.images.to(options.dtype)), batch.labels);
    loss.backward();
    optimizer.step();
    if (step % 10 == 0 || step + 1 == options.steps) {
      const double mean = hvd::average_metric(loss.item<double>(), "loss");
      if (hvd::rank() == 0) std::printf("step %d loss %.12f\n", step, mean);
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
  CLI::App app("Trains on threads of one process");
  app.add_option("--data", options.data)->capture_default_str();
  app.add_option("--threads", options.threads, "Ranks")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--steps", options.steps)->capture_default_str();
  app.add_option("--batch", options.batch, "Images per step, of all threads together")
      ->capture_default_str();
  app.add_flag_callback(
      "--float", [&] { options.dtype = torch::kFloat32; }, "Train in single precision");
  CLI11_PARSE(app, argc, argv);

  const mnist::Dataset data = mnist::load(options.data, mnist::Split::train);
  // The threads share LibTorch's generator. If each made its own model, they would take numbers
  // from it in any order, and no two runs would begin with the same model.
  torch::manual_seed(1);
  std::vector<mnist::Net> models;
  for (int rank = 0; rank < options.threads; ++rank) {
    models.emplace_back(/*dropout=*/false)->to(options.dtype);
  }
  // 1. Run the trainer as each rank.
  hvd::threads(options.threads, [&](hvd::Context& context) {
    train(options, data, models[static_cast<std::size_t>(context.rank())]);
  });
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_threads: %s\n", error.what());
  return 1;
}
