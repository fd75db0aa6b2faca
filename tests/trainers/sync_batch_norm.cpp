// Batch normalization with the statistics of all ranks' batches.
#include "data.hpp"

using torch::nn::BatchNorm2d;

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor images) {
    images = torch::relu(first_norm(first(images)));
    images = torch::relu(second_norm(second(images)));
    return classify(images.flatten(1));
  }

  torch::nn::Conv2d first{register_module("first", torch::nn::Conv2d(1, 4, 2))};
  BatchNorm2d first_norm{register_module("first_norm", BatchNorm2d(4))};
  torch::nn::Conv2d second{register_module("second", torch::nn::Conv2d(4, 6, 3))};
  BatchNorm2d second_norm{register_module("second_norm", BatchNorm2d(6))};
  torch::nn::Linear classify{register_module("classify", torch::nn::Linear(6, kOutputs))};
};
TORCH_MODULE(Net);

Tensors train(std::int64_t batch_size) {
  Net model;
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad();
      torch::cross_entropy_loss(model(images_of(batch)), labels_of(batch)).backward();
      optimizer.step();
    }
  }
  Tensors results = model->parameters();
  for (const auto& each : model->buffers()) results.push_back(each);
  return results;
}
