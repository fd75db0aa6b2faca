// The body of the model is frozen at first, and gets a parameter group of its own later. Then the
// head is frozen.
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  const auto body = model->ptr(0);
  const auto head = model->ptr(2);
  for (const auto& each : body->parameters()) each.set_requires_grad(false);
  torch::optim::SGD optimizer(head->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 6; ++epoch) {
    if (epoch == 2) {
      for (const auto& each : body->parameters()) each.set_requires_grad(true);
      optimizer.add_param_group(torch::optim::OptimizerParamGroup(body->parameters()));
    }
    if (epoch == 4) {
      for (const auto& each : head->parameters()) each.set_requires_grad(false);
    }
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad();
      torch::mse_loss(model->forward(inputs_of(batch)), targets_of(batch)).backward();
      optimizer.step();
    }
  }
  return model->parameters();
}
