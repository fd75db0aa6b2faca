// A second model follows the first one slowly and makes its targets, as in deep Q-learning.
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  torch::nn::Sequential target = make_model();
  torch::optim::Adam optimizer(model->parameters(), 0.01);
  const torch::Tensor rows = make_rows();

  const auto follow = [&](double share) {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < target->parameters().size(); ++i) {
      target->parameters()[i].lerp_(model->parameters()[i], share);
    }
  };
  follow(1);
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      const torch::Tensor wanted =
          targets_of(batch) + 0.9 * target->forward(inputs_of(batch)).detach();
      optimizer.zero_grad();
      torch::huber_loss(model->forward(inputs_of(batch)), wanted).backward();
      optimizer.step();
      follow(0.1);
    }
  }
  Tensors all = model->parameters();
  for (const auto& each : target->parameters()) all.push_back(each);
  return all;
}
