// A loss that contains gradients of the model's output, as in a WGAN with gradient penalty.
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  torch::optim::SGD optimizer(model->parameters(), 0.05);
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      const torch::Tensor inputs = inputs_of(batch).clone().requires_grad_();
      const torch::Tensor output = model->forward(inputs);
      const torch::Tensor slope =
          torch::autograd::grad({output.sum()}, {inputs}, {}, /*retain_graph=*/true,
                                /*create_graph=*/true)[0];
      optimizer.zero_grad();
      (torch::mse_loss(output, targets_of(batch)) + slope.square().sum(1).mean()).backward();
      optimizer.step();
    }
  }
  return model->parameters();
}
