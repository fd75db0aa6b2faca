// A loop over a data loader, with one loss and one optimizer.
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::data::samplers::SequentialSampler sampler(kRows);
  auto loader = torch::data::make_data_loader(Rows().map(Stack()), sampler, batch_size);

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const auto& batch : *loader) {
      optimizer.zero_grad();
      torch::mse_loss(model->forward(batch.data), batch.target).backward();
      optimizer.step();
    }
  }
  return model->parameters();
}
