#include "workload.hpp"

#include <map>
#include <utility>

#include <torch/nn/functional.h>

#include "mnist/model.hpp"
#include "resnet/model.hpp"

namespace hvd::bench {
namespace {

/// Makes a workload of any module that maps one tensor to another.
template <class Module>
Workload of(std::shared_ptr<Module> model) {
  Workload workload;
  workload.model = model;
  workload.forward = [model](const torch::Tensor& x) { return model->forward(x); };
  workload.loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::nn::functional::cross_entropy(output, target);
  };
  return workload;
}

Workload cnn() {
  Workload workload = of(mnist::Net(true).ptr());
  workload.loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::nll_loss(output, target);
  };
  workload.batch = 64;
  workload.input_shape = {1, 28, 28};
  workload.classes = 10;
  return workload;
}

/// The convolutional network of the pytorch-cpp tutorials, with BatchNorm.
Workload convnet() {
  using torch::nn::BatchNorm2d;
  using torch::nn::Conv2d;
  using torch::nn::Conv2dOptions;
  using torch::nn::MaxPool2d;
  using torch::nn::ReLU;
  Workload workload =
      of(torch::nn::Sequential(Conv2d(Conv2dOptions(1, 16, 5).padding(2)), BatchNorm2d(16), ReLU(),
                               MaxPool2d(2), Conv2d(Conv2dOptions(16, 32, 5).padding(2)),
                               BatchNorm2d(32), ReLU(), MaxPool2d(2), torch::nn::Flatten(),
                               torch::nn::Linear(7 * 7 * 32, 10))
             .ptr());
  workload.batch = 100;
  workload.input_shape = {1, 28, 28};
  workload.classes = 10;
  return workload;
}

/// An LSTM with a layer before and one after it.
struct Recurrent final : torch::nn::Module {
  Recurrent(torch::nn::AnyModule first, const torch::nn::LSTMOptions& options, std::int64_t outputs)
      : first_(std::move(first)),
        lstm_(register_module("lstm", torch::nn::LSTM(options))),
        last_(register_module(
            "last", torch::nn::Linear(options.hidden_size() * (options.bidirectional() ? 2 : 1),
                                      outputs))) {
    register_module("first", first_.ptr());
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return last_(std::get<0>(lstm_->forward(first_.forward(x))));
  }

 private:
  torch::nn::AnyModule first_;
  torch::nn::LSTM lstm_;
  torch::nn::Linear last_;
};

/// The bidirectional network of the pytorch-cpp tutorials, which reads an image as 28 rows.
Workload birnn() {
  const auto options = torch::nn::LSTMOptions(28, 128).num_layers(2).batch_first(true);
  Workload workload =
      of(std::make_shared<Recurrent>(torch::nn::AnyModule(torch::nn::Identity()),
                                     torch::nn::LSTMOptions(options).bidirectional(true), 10));
  workload.loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::nn::functional::cross_entropy(output.select(1, -1), target);
  };
  workload.batch = 100;
  workload.input_shape = {28, 28};
  workload.classes = 10;
  return workload;
}

/// Makes a model that predicts each word of a sequence. It learns to repeat its input, which costs
/// as much as any other target.
template <class Module>
Workload words(std::shared_ptr<Module> model, std::int64_t vocabulary) {
  Workload workload = of(model);
  workload.forward = [model](const torch::Tensor& x) {
    return model->forward(x).transpose(1, 2).contiguous();
  };
  workload.classes = workload.vocabulary = vocabulary;
  return workload;
}

/// The language model of the pytorch-cpp tutorials, with a smaller vocabulary and hidden layer.
Workload lstm() {
  constexpr std::int64_t kWords = 2000;
  Workload workload =
      words(std::make_shared<Recurrent>(torch::nn::AnyModule(torch::nn::Embedding(kWords, 128)),
                                        torch::nn::LSTMOptions(128, 512).batch_first(true), kWords),
            kWords);
  workload.batch = 20;
  workload.input_shape = {30};
  return workload;
}

struct Transformer final : torch::nn::Module {
  explicit Transformer(std::int64_t vocabulary)
      : embedding_(register_module("embedding", torch::nn::Embedding(vocabulary, kWidth))),
        encoder_(register_module(
            "encoder",
            torch::nn::TransformerEncoder(
                torch::nn::TransformerEncoderLayer(
                    torch::nn::TransformerEncoderLayerOptions(kWidth, 4).dim_feedforward(512)),
                2))),
        last_(register_module("last", torch::nn::Linear(kWidth, vocabulary))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return last_(encoder_->forward(embedding_(x.t())).transpose(0, 1));
  }

 private:
  static constexpr std::int64_t kWidth = 128;
  torch::nn::Embedding embedding_;
  torch::nn::TransformerEncoder encoder_;
  torch::nn::Linear last_;
};

Workload transformer() {
  constexpr std::int64_t kWords = 1000;
  Workload workload = words(std::make_shared<Transformer>(kWords), kWords);
  workload.batch = 16;
  workload.input_shape = {32};
  return workload;
}

Workload mlp25m() {
  using torch::nn::Linear;
  using torch::nn::ReLU;
  Workload workload = of(torch::nn::Sequential(Linear(1024, 4096), ReLU(), Linear(4096, 4096),
                                               ReLU(), Linear(4096, 1024), ReLU(), Linear(1024, 10))
                             .ptr());
  workload.batch = 64;
  workload.input_shape = {1024};
  workload.classes = 10;
  return workload;
}

template <class Module>
Workload images(std::shared_ptr<Module> model, std::int64_t batch) {
  Workload workload = of(std::move(model));
  workload.batch = batch;
  workload.input_shape = {3, 64, 64};
  workload.classes = 1000;
  return workload;
}

const std::map<std::string, std::function<Workload()>>& makers() {
  static const std::map<std::string, std::function<Workload()>> kMakers{
      {"birnn", birnn},
      {"cnn", cnn},
      {"convnet", convnet},
      {"lstm", lstm},
      {"mlp25m", mlp25m},
      {"resnet18", [] { return images(resnet::resnet18(1000), 16); }},
      {"resnet50", [] { return images(resnet::resnet50(1000), 8); }},
      {"transformer", transformer}};
  return kMakers;
}

}  // namespace

std::vector<std::string> workload_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : makers()) names.push_back(name);
  return names;
}

Workload make_workload(const std::string& model, std::int64_t batch) {
  Workload workload = makers().at(model)();
  if (batch > 0) workload.batch = batch;
  return workload;
}

}  // namespace hvd::bench
