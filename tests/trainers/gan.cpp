// A GAN: two models and two optimizers. Gradients of the generator's loss pass through the
// discriminator. The noise is part of the data.
#include "data.hpp"

torch::Tensor loss_for(const torch::Tensor& logits, double answer) {
  return torch::binary_cross_entropy_with_logits(logits, torch::full_like(logits, answer));
}

Tensors train(std::int64_t batch_size) {
  using namespace torch::nn;
  Sequential generator(Linear(kOutputs, 8), Tanh(), Linear(8, kInputs));
  Sequential discriminator(Linear(kInputs, 8), LeakyReLU(), Linear(8, 1));
  const auto options = torch::optim::AdamOptions(0.01);
  torch::optim::Adam generator_steps(generator->parameters(), options);
  torch::optim::Adam discriminator_steps(discriminator->parameters(), options);
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      const torch::Tensor drawn = generator->forward(targets_of(batch));

      discriminator_steps.zero_grad();
      (loss_for(discriminator->forward(inputs_of(batch)), 1) +
       loss_for(discriminator->forward(drawn.detach()), 0))
          .backward();
      discriminator_steps.step();

      generator_steps.zero_grad();
      loss_for(discriminator->forward(drawn), 1).backward();
      generator_steps.step();
    }
  }
  Tensors all = generator->parameters();
  for (const auto& each : discriminator->parameters()) all.push_back(each);
  return all;
}
