// A function that trains with any optimizer. The loader shuffles; an epoch is one batch here, so
// that its order does not matter.
#include "data.hpp"

template <class Loader>
void fit(torch::nn::Sequential& model, Loader& loader, torch::optim::Optimizer& optimizer) {
  for (int epoch = 0; epoch < 10; ++epoch) {
    for (const auto& batch : loader) {
      optimizer.zero_grad();
      torch::smooth_l1_loss(model->forward(batch.data), batch.target).backward();
      optimizer.step();
    }
  }
}

Tensors train(std::int64_t batch_size) {
  constexpr std::size_t kBatch = 12;
  torch::nn::Sequential model = make_model();
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
  torch::data::samplers::RandomSampler sampler(kBatch);
  auto loader = torch::data::make_data_loader(Rows(kBatch).map(Stack()), sampler, batch_size);
  fit(model, *loader, optimizer);
  return model->parameters();
}
