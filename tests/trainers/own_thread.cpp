// The training loop runs on a thread of its own, which makes each backward pass on yet another one.
#include <thread>

#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const torch::Tensor rows = make_rows();

  std::thread training([&] {
    for (int epoch = 0; epoch < 5; ++epoch) {
      for (const torch::Tensor& batch : rows.split(batch_size)) {
        optimizer.zero_grad();
        const auto loss = torch::mse_loss(model->forward(inputs_of(batch)), targets_of(batch));
        std::thread([&] { loss.backward(); }).join();
        optimizer.step();
      }
    }
  });
  training.join();
  return model->parameters();
}
