// The trainer takes all parameters as one vector, changes it and gives it back.
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      model->zero_grad();
      torch::mse_loss(model->forward(inputs_of(batch)), targets_of(batch)).backward();
      Tensors gradients;
      for (const auto& each : model->parameters()) gradients.push_back(each.grad());
      const torch::NoGradGuard no_grad;
      const torch::Tensor vector = torch::nn::utils::parameters_to_vector(model->parameters());
      const torch::Tensor gradient = torch::nn::utils::parameters_to_vector(gradients);
      torch::nn::utils::vector_to_parameters(vector - 0.1 * gradient / gradient.norm(),
                                             model->parameters());
    }
  }
  return model->parameters();
}
