// Trains a TorchScript module, which is made here or was saved in Python (torch.jit.script).
//
//   hvdrun -np 4 train_torchscript --steps 1000 --save trained.pt
//   hvdrun -np 4 train_torchscript --module trained.pt
//
// The lines that make it distributed are marked 1. to 4.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>
#include <torch/script.h>
#include <torch/torch.h>

#include <hvd/torch.hpp>

#include "mnist/batches.hpp"
#include "mnist/dataset.hpp"

namespace {

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string module;
  std::string save;
  int steps = 1000;
  std::size_t batch = 64;  // per rank
};

/// Returns a module that maps images [B, 1, 28, 28] to logits [B, 10].
torch::jit::Module make_module() {
  torch::jit::Module module("Perceptron");
  const auto add = [&](const char* name, const torch::Tensor& values) {
    module.register_parameter(name, values.set_requires_grad(true), /*is_buffer=*/false);
  };
  add("weight1", torch::randn({784, 100}) / 28);
  add("bias1", torch::zeros({100}));
  add("weight2", torch::randn({100, 10}) / 10);
  add("bias2", torch::zeros({10}));
  module.define(R"(
    def forward(self, images):
      hidden = torch.relu(torch.flatten(images, 1) @ self.weight1 + self.bias1)
      return hidden @ self.weight2 + self.bias2
  )");
  return module;
}

void train(const Options& options) {
  torch::jit::Module module =
      options.module.empty() ? make_module() : torch::jit::load(options.module);
  module.train();

  // 2. Make the distributed optimizer. hvd::DistributedDataParallel takes such a module too.
  hvd::DistributedOptimizer<torch::optim::SGD> optimizer(
      module, torch::optim::SGDOptions(0.05).momentum(0.9));
  // 3. Take a shard of the data.
  const mnist::Dataset data = mnist::load(options.data, mnist::Split::train);
  mnist::Batches batches(data, hvd::DistributedSampler(static_cast<std::size_t>(data.size())),
                         options.batch);

  for (int step = 0; step < options.steps; ++step) {
    const mnist::Dataset batch = batches.next();
    optimizer.zero_grad();
    const torch::Tensor output = module.forward({batch.images}).toTensor();
    const torch::Tensor loss = torch::cross_entropy_loss(output, batch.labels);
    loss.backward();
    optimizer.step();

    if (step % 10 == 0 || step + 1 == options.steps) {
      const double mean = hvd::average_metric(loss.item<double>(), "loss");
      if (hvd::rank() == 0) std::printf("step %d loss %.4f\n", step, mean);
    }
  }

  const hvd::Verification same = hvd::verify(module);
  // 4. Let one rank print and save.
  if (hvd::rank() == 0) {
    std::printf("%s\n",
                same ? "all ranks hold identical parameters" : same.first_difference.c_str());
    if (!options.save.empty()) module.save(options.save);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a TorchScript module on Fashion-MNIST");
  app.add_option("--data", options.data)->capture_default_str();
  app.add_option("--module", options.module, "Train this one")->check(CLI::ExistingFile);
  app.add_option("--save", options.save, "Write the trained module here");
  app.add_option("--steps", options.steps)->capture_default_str();
  app.add_option("--batch", options.batch, "Images per rank and step")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  hvd::init();  // 1. Join the job.
  train(options);
  hvd::shutdown();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train_torchscript: %s\n", error.what());
  return 1;
}
