// Sharpness-aware minimization: a first pass moves the parameters uphill, and the gradient of a
// second pass there makes the step.
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      const auto pass = [&] {
        optimizer.zero_grad();
        torch::mse_loss(model->forward(inputs_of(batch)), targets_of(batch)).backward();
      };
      const auto move = [&](const Tensors& by, double factor) {
        const torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < by.size(); ++i) model->parameters()[i].add_(by[i], factor);
      };
      pass();
      Tensors uphill;
      double squares = 0;
      for (const auto& each : model->parameters()) {
        uphill.push_back(each.grad().clone());
        squares += each.grad().square().sum().item<double>();
      }
      move(uphill, 0.05 / std::sqrt(squares));
      pass();
      move(uphill, -0.05 / std::sqrt(squares));
      optimizer.step();
    }
  }
  return model->parameters();
}
