// Hooks of the program's own, on parameters and on an activation.
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  auto& first = model->at<torch::nn::LinearImpl>(0);
  auto& second = model->at<torch::nn::LinearImpl>(2);
  first.weight.register_hook([](const torch::Tensor& gradient) { return gradient * 0.5; });
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const torch::Tensor rows = make_rows();
  int calls = 0;
  second.weight.register_hook([&calls](const torch::Tensor&) { ++calls; });

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad();
      const torch::Tensor hidden = torch::tanh(first.forward(inputs_of(batch)));
      hidden.register_hook([](const torch::Tensor& gradient) { return gradient * 2; });
      torch::mse_loss(second.forward(hidden), targets_of(batch)).backward();
      optimizer.step();
    }
  }
  TORCH_CHECK(calls >= 10, "the hook was called ", calls, " times");
  return model->parameters();
}
