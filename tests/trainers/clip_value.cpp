// A loader with workers, a model in a shared_ptr, and gradients that are clipped one by one.
#include "data.hpp"

struct Net : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) { return second(torch::gelu(first(input))); }

  torch::nn::Linear first{register_module("first", torch::nn::Linear(kInputs, 8))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(8, kOutputs))};
};

Tensors train(std::int64_t batch_size) {
  const auto model = std::make_shared<Net>();
  torch::optim::RMSprop optimizer(model->parameters(), torch::optim::RMSpropOptions(0.01));
  torch::data::samplers::SequentialSampler sampler(kRows);
  const auto options = torch::data::DataLoaderOptions(batch_size).workers(2);
  auto loader = torch::data::make_data_loader(Rows().map(Stack()), sampler, options);

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const auto& batch : *loader) {
      optimizer.zero_grad();
      torch::mse_loss(model->forward(batch.data), batch.target).backward();
      torch::nn::utils::clip_grad_value_(model->parameters(), 0.05);
      optimizer.step();
    }
  }
  return model->parameters();
}
