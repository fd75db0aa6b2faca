// Trains on Fashion-MNIST while its workers come and go, in double precision, until the file `stop`
// is in the directory of its first argument, and then prints the loss and the accuracy on the test
// images. With --used it stops after so many examples instead, so that a job that nobody disturbs
// can train on equally many. With --global-batch 0 each rank takes 16 examples in each step, so
// that the batch follows the number of ranks. With --adamw the optimizer is AdamW instead of SGD.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include <hvd/torch.hpp>

#include "mnist/dataset.hpp"
#include "mnist/model.hpp"

namespace {

using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

constexpr std::size_t kOwnBatch = 16;

struct Options {
  std::string directory;
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::int64_t images = 3200;
  std::int64_t test_images = 1000;
  std::size_t global_batch = 32;
  std::int64_t used = 0;
  int pause_ms = 0;
  bool adamw = false;
};

mnist::Dataset load(const Options& options, mnist::Split split, std::int64_t images) {
  mnist::Dataset data = mnist::load(options.data, split, images);
  data.images = data.images.to(torch::kFloat64);
  return data;
}

mnist::Net make_net() {
  torch::manual_seed(1);
  mnist::Net net(/*dropout=*/false);
  net->to(torch::kFloat64);
  return net;
}

template <class Optimizer, class OptimizerOptions>
class Trainer {
 public:
  Trainer(const Options& options, const OptimizerOptions& of_optimizer)
      : options_(options),
        optimizer_(net_, of_optimizer, {.weighted = options_.global_batch > 0}) {}

  void run() {
    hvd::elastic_run(state_, [this] {
      begin_generation();
      while (true) {
        sampler_.reset();
        while (const auto share = sampler_.next(kOwnBatch)) {
          if (!step(*share)) return evaluate();
        }
      }
    });
  }

 private:
  void begin_generation() {
    is_new_ = true;
    check_replicas();
    const char* const worker = std::getenv("HVD_WORKER");
    const std::string name = worker != nullptr ? worker : std::to_string(hvd::rank());
    std::printf("generation %u: worker %s is rank %d of %d, step %lld, %d ranks with worker %s\n",
                hvd::elastic::generation(), name.c_str(), hvd::rank(), hvd::size(),
                static_cast<long long>(steps_), hvd::size(), name.c_str());
    std::fflush(stdout);
  }

  void check_replicas() {
    for (const auto& same : {hvd::verify(net_), hvd::verify(optimizer_)}) {
      if (!same) throw std::runtime_error("replicas differ: " + same.first_difference);
    }
  }

  /// Returns false when training is to end on all ranks.
  bool step(const std::vector<std::size_t>& share) {
    const bool stops = options_.used == 0 &&
                       std::filesystem::exists(std::filesystem::path(options_.directory) / "stop");
    const torch::Tensor sums = hvd::allreduce(
        torch::tensor({static_cast<double>(share.size()), stops ? 1.0 : 0.0}, torch::kFloat64),
        {.name = "sums", .op = hvd::ReduceOp::sum});
    if (sums[1].item<double>() > 0 || (options_.used > 0 && used_ >= options_.used)) return false;
    if (options_.global_batch > 0) optimizer_.set_weight(static_cast<double>(share.size()));
    optimizer_.zero_grad();
    const mnist::Dataset batch = data_.pick(share);
    torch::nll_loss(net_(batch.images), batch.labels).backward();
    optimizer_.step();
    ++steps_;
    used_ += sums[0].item<std::int64_t>();
    sampler_.record_batch(share.size());
    if (std::exchange(is_new_, false)) check_replicas();
    // This leaves time for the programs that start.
    if (options_.pause_ms > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds{options_.pause_ms});
    }
    return true;
  }

  void evaluate() {
    check_replicas();
    const torch::NoGradGuard no_grad;
    const mnist::Dataset test = load(options_, mnist::Split::test, options_.test_images);
    const mnist::Dataset own = test.pick(torch::arange(hvd::rank(), test.size(), hvd::size()));
    const torch::Tensor output = net_(own.images);
    const torch::Tensor sums =
        hvd::allreduce(torch::stack({torch::nll_loss(output, own.labels, {}, at::Reduction::Sum),
                                     output.argmax(1).eq(own.labels).sum().to(torch::kFloat64)}),
                       {.name = "test", .op = hvd::ReduceOp::sum});
    if (hvd::rank() != 0) return;
    const auto all = static_cast<double>(test.size());
    std::printf("steps %lld used %lld loss %.9f accuracy %.4f.\n", static_cast<long long>(steps_),
                static_cast<long long>(used_), sums[0].item<double>() / all,
                sums[1].item<double>() / all);
  }

  const Options& options_;
  mnist::Dataset data_ = load(options_, mnist::Split::train, options_.images);
  mnist::Net net_ = make_net();
  hvd::DistributedOptimizer<Optimizer> optimizer_;
  hvd::ElasticSampler sampler_{static_cast<std::size_t>(data_.size()),
                               {.global_batch = options_.global_batch}};
  std::int64_t steps_ = 0;
  std::int64_t used_ = 0;
  bool is_new_ = true;  ///< no step has been taken in this generation
  hvd::ElasticState state_{net_, optimizer_, sampler_, steps_, used_};
};

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains on Fashion-MNIST while workers come and go");
  app.add_option("directory", options.directory)->required();
  app.add_option("--data", options.data);
  app.add_option("--images", options.images);
  app.add_option("--test-images", options.test_images);
  app.add_option("--global-batch", options.global_batch);
  app.add_option("--used", options.used);
  app.add_option("--pause-ms", options.pause_ms);
  app.add_flag("--adamw", options.adamw);
  CLI11_PARSE(app, argc, argv);
  torch::set_num_threads(1);
  hvd::init();
  if (options.adamw) {
    Trainer<AdamW, AdamWOptions>(options, AdamWOptions(0.001)).run();
  } else {
    Trainer<SGD, SGDOptions>(options, SGDOptions(0.01).momentum(0.9)).run();
  }
  hvd::shutdown();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "worker threw: %s\n", error.what());
  return 4;
}
