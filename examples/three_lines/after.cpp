// before.cpp is a trainer for one process, and after.cpp is the same for many. They differ in three
// lines and an include:  diff before.cpp after.cpp
//
//   three_lines_before [steps]
//   hvdrun -np 4 three_lines_after [steps]
#include <cstdio>
#include <cstdlib>

#include <torch/torch.h>

#include <hvd/torch.hpp>

#include "mnist/dataset.hpp"
#include "mnist/model.hpp"

int main(int argc, char** argv) {
  hvd::init();
  const int steps = argc > 1 ? std::atoi(argv[1]) : 1000;
  const std::string folder = "/usr/share/datasets/fashion-mnist";
  const mnist::Dataset data = mnist::load(folder, mnist::Split::train);
  const mnist::Dataset test = mnist::load(folder, mnist::Split::test);

  mnist::Net model(false);
  hvd::DistributedDataParallel parallel(model);
  torch::optim::SGD optimizer(model->parameters(), 0.05);
  hvd::DistributedSampler sampler(data.size());

  for (int step = 0; step < steps; ++step) {
    auto indices = sampler.next(64);
    if (!indices) {
      sampler.reset();
      indices = sampler.next(64);
    }
    const mnist::Dataset batch = data.pick(*indices);
    optimizer.zero_grad();
    const torch::Tensor loss = torch::nll_loss(model(batch.images), batch.labels);
    loss.backward();
    optimizer.step();
    if (step % 10 == 0) std::printf("step %d loss %.4f\n", step, loss.item<double>());
  }

  const torch::NoGradGuard no_grad;
  const torch::Tensor output = model(test.images);
  std::printf("test loss %.9f\n", torch::nll_loss(output, test.labels).item<double>());
  std::printf("test accuracy %.4f\n",
              output.argmax(1).eq(test.labels).to(torch::kFloat64).mean().item<double>());
}
