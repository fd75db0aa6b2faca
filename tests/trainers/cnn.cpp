// A convolutional network for images, evaluated after each epoch by a function that turns gradients
// off.
#include "data.hpp"

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor images) {
    images = torch::max_pool2d(torch::relu(first(images)), 2);
    images = torch::max_pool2d(torch::relu(second(images)), 2);
    return torch::log_softmax(classify(images.flatten(1)), 1);
  }

  torch::nn::Conv2d first{
      register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1)))};
  torch::nn::Conv2d second{
      register_module("second", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 6, 3).padding(1)))};
  torch::nn::Linear classify{register_module("classify", torch::nn::Linear(6, kOutputs))};
};
TORCH_MODULE(Net);

double evaluate(Net& model, const torch::Tensor& images) {
  const torch::NoGradGuard no_grad;
  model->eval();
  const double mean = model(images).exp().max().item<double>();
  model->train();
  return mean;
}

Tensors train(std::int64_t batch_size) {
  Net model;
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad();
      torch::nll_loss(model(images_of(batch)), labels_of(batch)).backward();
      optimizer.step();
    }
    if (evaluate(model, images_of(make_rows())) > 0.99) break;
  }
  return model->parameters();
}
