// Adam with a learning rate that falls each epoch, and one that grows in the first steps.
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.02));
  torch::optim::StepLR scheduler(optimizer, /*step_size=*/2, /*gamma=*/0.5);
  const torch::Tensor rows = make_rows();

  int step = 0;
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      if (step < 4) optimizer.param_groups()[0].options().set_lr(0.005 * ++step);
      optimizer.zero_grad();
      torch::mse_loss(model->forward(inputs_of(batch)), targets_of(batch)).backward();
      optimizer.step();
    }
    scheduler.step();
  }
  return model->parameters();
}
