// The trainer changes the parameters itself, without an optimizer of LibTorch.
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      model->zero_grad();
      torch::mse_loss(model->forward(inputs_of(batch)), targets_of(batch)).backward();
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& each : model->parameters()) each -= 0.1 * each.grad();
    }
  }
  return model->parameters();
}
