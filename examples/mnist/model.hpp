// Defines the network of Horovod's MNIST tutorial.
#pragma once

#include <torch/nn.h>

namespace mnist {

/// Maps images [B, 1, 28, 28] to log-probabilities [B, 10]. Dropout is a quarter and not a half as
/// in the tutorial, because a half needs many more epochs.
class NetImpl : public torch::nn::Module {
 public:
  explicit NetImpl(bool dropout)
      : dropout_(dropout),
        conv1_(register_module("conv1", torch::nn::Conv2d(1, 10, 5))),
        conv2_(register_module("conv2", torch::nn::Conv2d(10, 20, 5))),
        fc1_(register_module("fc1", torch::nn::Linear(320, 50))),
        fc2_(register_module("fc2", torch::nn::Linear(50, 10))) {}

  torch::Tensor forward(torch::Tensor x) {
    const bool drop = dropout_ && is_training();
    x = torch::relu(torch::max_pool2d(conv1_(x), 2));
    x = torch::relu(torch::max_pool2d(torch::feature_dropout(conv2_(x), kDropped, drop), 2));
    x = torch::dropout(torch::relu(fc1_(x.view({-1, 320}))), kDropped, drop);
    return torch::log_softmax(fc2_(x), 1);
  }

 private:
  static constexpr double kDropped = 0.25;

  bool dropout_;
  torch::nn::Conv2d conv1_;
  torch::nn::Conv2d conv2_;
  torch::nn::Linear fc1_;
  torch::nn::Linear fc2_;
};
TORCH_MODULE(Net);

}  // namespace mnist
