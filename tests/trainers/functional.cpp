// Gradients of torch::autograd::grad, which backward() does not see. All processes seed alike, so
// that they begin with the same model.
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::manual_seed(1);
  torch::nn::Sequential model = make_model();
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      const auto loss = torch::mse_loss(model->forward(inputs_of(batch)), targets_of(batch));
      const Tensors gradients = torch::autograd::grad({loss}, model->parameters());
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        model->parameters()[i] -= 0.1 * gradients[i];
      }
    }
  }
  return model->parameters();
}
