// Two tasks, whose gradients are computed one after the other. Where they conflict, one is
// projected before they are added (Yu et al. 2020).
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const torch::Tensor rows = make_rows();

  const auto gradients_of = [&](const torch::Tensor& loss) {
    optimizer.zero_grad();
    loss.backward();
    Tensors gradients;
    for (const auto& each : model->parameters()) gradients.push_back(each.grad().clone());
    return gradients;
  };
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      const Tensors one =
          gradients_of(torch::mse_loss(model->forward(inputs_of(batch)), targets_of(batch)));
      const Tensors two = gradients_of(
          torch::mse_loss(model->forward(inputs_of(batch)), -targets_of(batch).roll(1, 1)));
      for (std::size_t i = 0; i < one.size(); ++i) {
        const double conflict = std::min(0.0, (one[i] * two[i]).sum().item<double>());
        model->parameters()[i].mutable_grad() =
            one[i] + two[i] - conflict / two[i].square().sum().item<double>() * two[i];
      }
      optimizer.step();
    }
  }
  return model->parameters();
}
