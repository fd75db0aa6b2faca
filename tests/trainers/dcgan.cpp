// A DCGAN, whose discriminator has two backward passes in each step, as in PyTorch's
// tutorial. The noise is part of the data.
#include "data.hpp"

torch::Tensor loss_for(const torch::Tensor& output, double answer) {
  return torch::binary_cross_entropy(output, torch::full_like(output, answer));
}

Tensors train(std::int64_t batch_size) {
  using namespace torch::nn;
  Sequential generator(ConvTranspose2d(ConvTranspose2dOptions(kOutputs, 6, 2).bias(false)), ReLU(),
                       ConvTranspose2d(ConvTranspose2dOptions(6, 1, 4).stride(2).padding(1)),
                       Tanh());
  Sequential discriminator(Conv2d(Conv2dOptions(1, 6, 4).stride(2).padding(1)),
                           LeakyReLU(LeakyReLUOptions().negative_slope(0.2)),
                           Conv2d(Conv2dOptions(6, 1, 2)), Sigmoid());
  const auto options = torch::optim::AdamOptions(0.002).betas({0.5, 0.999});
  torch::optim::Adam generator_steps(generator->parameters(), options);
  torch::optim::Adam discriminator_steps(discriminator->parameters(), options);
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      const torch::Tensor images = torch::tanh(images_of(batch));
      const torch::Tensor noise = targets_of(batch).reshape({-1, kOutputs, 1, 1});

      discriminator->zero_grad();
      loss_for(discriminator->forward(images), 1).backward();
      const torch::Tensor drawn = generator->forward(noise);
      loss_for(discriminator->forward(drawn.detach()), 0).backward();
      discriminator_steps.step();

      generator->zero_grad();
      loss_for(discriminator->forward(drawn), 1).backward();
      generator_steps.step();
    }
  }
  Tensors all = generator->parameters();
  for (const auto& each : discriminator->parameters()) all.push_back(each);
  return all;
}
