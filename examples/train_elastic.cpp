// Trains while ranks come and go. Kill a rank: the others go on after the last step that was
// completed, and hvdrun starts another one, which joins them.
//
//   hvdrun -np 3 --min-np 1 train_elastic --epochs 10
//   hvdrun -np 3 --min-np 1 train_elastic --crash-at 20      (a rank crashes by itself)
//   hvdrun -np 3 --min-np 1 train_elastic --exact 4          (the same bits with any ranks)
//
// The lines that make it distributed are marked 1. to 5. It runs as one process too.
#include <algorithm>
#include <csignal>
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
  int epochs = 2;
  std::size_t batch = 32;
  std::int64_t images = 6000;
  double rate = 0.01;
  int crash_at = 0;
  int exact = 0;
};

void crash_at(const Options& options, int step) {
  const bool is_last = hvd::rank() + 1 == hvd::size();
  if (step == options.crash_at && hvd::elastic::generation() == 1 && is_last) std::raise(SIGKILL);
}

void train(const Options& options) {
  const mnist::Dataset data = mnist::load(options.data, mnist::Split::train, options.images);
  mnist::Net model(/*dropout=*/true);
  // 2. Average the gradients. There are no ranks yet, so the constructor communicates nothing.
  hvd::DistributedOptimizer<torch::optim::SGD> optimizer(
      *model, torch::optim::SGDOptions(options.rate).momentum(0.9));
  // 3. Divide what is left of an epoch among the ranks that there are.
  hvd::ElasticSampler sampler(static_cast<std::size_t>(data.size()));
  // 4. Name what all ranks have in common.
  int epoch = 0;
  int step = 0;
  std::int64_t used = 0;
  hvd::ElasticState state(model, optimizer, sampler, epoch, step, used);
  state.on_reset([&] { optimizer.param_groups()[0].options().set_lr(options.rate * hvd::size()); });

  // 5. The function is called once in each generation of ranks, and goes on where the state says.
  const bool finished = hvd::elastic_run(state, [&] {
    if (step == 0) optimizer.param_groups()[0].options().set_lr(options.rate * hvd::size());
    std::printf("generation %u: rank %d of %d goes on after step %d\n", hvd::elastic::generation(),
                hvd::rank(), hvd::size(), step);
    for (; epoch < options.epochs; ++epoch) {
      sampler.reset();
      while (const auto indices = sampler.next(options.batch)) {
        const mnist::Dataset batch = data.pick(*indices);
        optimizer.zero_grad();
        const torch::Tensor loss = torch::nll_loss(model(batch.images), batch.labels);
        loss.backward();
        crash_at(options, ++step);
        optimizer.step();
        used += batch.size() * hvd::size();
        if (hvd::rank() == 0 && step % 20 == 0) {
          std::printf("step %d loss %.4f, %d ranks\n", step, loss.item<double>(), hvd::size());
        }
        sampler.record_batch(indices->size());  // ends the iteration; ranks may change here
      }
    }
    const auto same = hvd::verify(model->named_parameters());
    if (hvd::rank() == 0) {
      std::printf("used %lld images in %d epochs; %s\n", static_cast<long long>(used), epoch,
                  same ? "all ranks hold identical parameters" : "the ranks differ");
    }
  });
  if (!finished) std::printf("this rank was asked to leave\n");
}

/// Trains with shards that do not depend on the ranks. What it prints at the end is the same, to
/// the bit, with any number of ranks.
void train_exactly(const Options& options) {
  torch::set_num_threads(1);  // sums depend on it
  torch::manual_seed(1);
  const mnist::Dataset data = mnist::load(options.data, mnist::Split::train, options.images);
  mnist::Net model(/*dropout=*/true);
  hvd::ElasticSampler sampler(
      static_cast<std::size_t>(data.size()),
      {.global_batch = options.batch * static_cast<std::size_t>(options.exact),
       .shards = options.exact});
  torch::optim::SGD sgd(model->parameters(),
                        torch::optim::SGDOptions(options.rate * options.exact).momentum(0.9));
  hvd::ExactOptimizer optimizer(sgd, *model, sampler);
  int epoch = 0;
  int step = 0;
  double loss = 0;
  hvd::ElasticState state(model, optimizer, sampler, epoch, step, loss);
  hvd::elastic_run(state, [&] {
    std::printf("generation %u: rank %d of %d goes on after step %d\n", hvd::elastic::generation(),
                hvd::rank(), hvd::size(), step);
    for (; epoch < options.epochs; ++epoch) {
      sampler.reset();
      while (const auto indices = sampler.next(0)) {
        loss = optimizer.backward(*indices, [&](const hvd::BatchShard& shard) {
          const mnist::Dataset part = data.pick(shard.examples);
          return torch::nll_loss(model(part.images), part.labels);
        });
        crash_at(options, ++step);
        optimizer.step();
        if (hvd::rank() == 0 && step % 20 == 0) std::printf("step %d loss %.4f\n", step, loss);
        sampler.record_batch(indices->size());
      }
    }
    double sum = 0;
    for (const torch::Tensor& parameter : model->parameters()) {
      sum += parameter.to(torch::kFloat64).sum().item<double>();
    }
    if (hvd::rank() != 0) return;
    std::printf("after %d steps: loss %a, sum of parameters %a\n", step, loss, sum);
  });
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains while ranks come and go");
  app.add_option("--data", options.data)->capture_default_str();
  app.add_option("--epochs", options.epochs)->capture_default_str();
  app.add_option("--batch", options.batch, "Images per rank and step")->capture_default_str();
  app.add_option("--images", options.images)->capture_default_str();
  app.add_option("--rate", options.rate, "The learning rate of one rank")->capture_default_str();
  app.add_option("--crash-at", options.crash_at, "The step in which the last rank kills itself");
  app.add_option("--exact", options.exact, "Shards of a step, of --batch images each")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);

  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  hvd::init();  // 1. Join the job.
  options.exact > 0 ? train_exactly(options) : train(options);
  hvd::shutdown();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_elastic: %s\n", error.what());
  return 1;
}
