// LBFGS, which evaluates a closure several times in each step and searches along a line.
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  const auto options = torch::optim::LBFGSOptions(0.5).max_iter(3).line_search_fn("strong_wolfe");
  torch::optim::LBFGS optimizer(model->parameters(), options);
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.step([&] {
        optimizer.zero_grad();
        const torch::Tensor loss =
            torch::mse_loss(model->forward(inputs_of(batch)), targets_of(batch));
        loss.backward();
        return loss;
      });
    }
  }
  return model->parameters();
}
