// A model that changes its activations in place, and weights that are kept small in place.
#include "data.hpp"

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor hidden = first(input).relu_();
    hidden = hidden.clone().add_(second(hidden)).relu_();
    return last(hidden).mul_(0.5);
  }

  torch::nn::Linear first{register_module("first", torch::nn::Linear(kInputs, 8))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(8, 8))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(8, kOutputs))};
};
TORCH_MODULE(Net);

Tensors train(std::int64_t batch_size) {
  Net model;
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad(/*set_to_none=*/false);
      torch::mse_loss(model(inputs_of(batch)), targets_of(batch)).backward();
      optimizer.step();
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& each : model->parameters()) each.clamp_(-0.3, 0.3);
    }
  }
  return model->parameters();
}
