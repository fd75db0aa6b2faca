// Trains with batches that are larger than memory. The gradients of several passes add up, are
// averaged over the ranks once, and are clipped. Either an option of the optimizer or `no_sync`
// does this.
//
//   hvdrun -np 4 train_accumulate --passes 4
//   hvdrun -np 4 train_accumulate --passes 4 --by-hand
//
// The lines that make it distributed are marked 1. to 3.
#include <cstdio>
#include <exception>
#include <optional>

#include <CLI/CLI.hpp>
#include <torch/torch.h>

#include <hvd/torch.hpp>

#include "mnist/batches.hpp"
#include "mnist/dataset.hpp"
#include "mnist/model.hpp"

namespace {

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  int steps = 1000;
  int passes = 4;          // backward passes per step
  std::size_t batch = 16;  // images per pass and rank
  double clip = 1.0;       // the greatest norm of all gradients together
  bool by_hand = false;
};

void train(const Options& options) {
  mnist::Net model(/*dropout=*/false);
  // 2. Average the gradients over the ranks in the last pass of each step. With --by-hand the
  //    optimizer does so in every pass, except where `no_sync` below prevents it.
  hvd::DistributedOptimizer<torch::optim::SGD> optimizer(
      model->named_parameters(), torch::optim::SGDOptions(0.05).momentum(0.9),
      {.backward_passes_per_step = options.by_hand ? 1 : options.passes,
       .average_accumulated = true});
  // 3. Take a shard of the data.
  const mnist::Dataset data = mnist::load(options.data, mnist::Split::train);
  mnist::Batches batches(data, hvd::DistributedSampler(static_cast<std::size_t>(data.size())),
                         options.batch);

  for (int step = 0; step < options.steps; ++step) {
    optimizer.zero_grad();
    double loss_of_step = 0;
    for (int pass = 1; pass <= options.passes; ++pass) {
      const mnist::Dataset batch = batches.next();
      const torch::Tensor loss = torch::nll_loss(model(batch.images), batch.labels);
      if (!options.by_hand) {
        loss.backward();
      } else if (pass < options.passes) {
        const auto pause = optimizer.no_sync();  // gradients add up, and nothing is sent
        (loss / options.passes).backward();
      } else {
        (loss / options.passes).backward();  // the sum is sent
      }
      loss_of_step += loss.item<double>() / options.passes;
    }

    torch::nn::utils::clip_grad_norm_(model->parameters(), options.clip);
    optimizer.step();

    if (step % 10 == 0 || step + 1 == options.steps) {
      const double mean = hvd::average_metric(loss_of_step, "loss");
      if (hvd::rank() == 0) std::printf("step %d loss %.4f\n", step, mean);
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
  CLI::App app("Trains with gradients of several passes");
  app.add_option("--data", options.data)->capture_default_str();
  app.add_option("--steps", options.steps)->capture_default_str();
  app.add_option("--passes", options.passes, "Backward passes per step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Images per pass and rank")->capture_default_str();
  app.add_option("--clip", options.clip, "Norm of the gradients")->capture_default_str();
  app.add_flag("--by-hand", options.by_hand, "With no_sync() instead of an option");
  CLI11_PARSE(app, argc, argv);

  hvd::init();            // 1. Join the job.
  torch::manual_seed(1);  // with and without --by-hand, training begins with the same model
  train(options);
  hvd::shutdown();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_accumulate: %s\n", error.what());
  return 1;
}
