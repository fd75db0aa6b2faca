// Parameter groups with learning rates of their own, one of which the trainer changes.
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(model->ptr(0)->parameters(),
                      std::make_unique<torch::optim::AdamOptions>(0.001));
  groups.emplace_back(model->ptr(2)->parameters(),
                      std::make_unique<torch::optim::AdamOptions>(0.05));
  torch::optim::Adam optimizer(groups, torch::optim::AdamOptions());
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad();
      torch::mse_loss(model->forward(inputs_of(batch)), targets_of(batch)).backward();
      optimizer.step();
    }
    optimizer.param_groups()[1].options().set_lr(0.05 / (epoch + 2));
  }
  return model->parameters();
}
