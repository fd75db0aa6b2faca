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
  workload.loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::nn::functional::cross_entropy(output.flatten(0, 1), target.flatten());
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

/// One of the layers of `Gpt2`.
struct Gpt2Block final : torch::nn::Module {
  Gpt2Block(std::int64_t width, std::int64_t heads)
      : heads_(heads),
        attention_norm_(register_module("attention_norm", norm(width))),
        qkv_(register_module("qkv", torch::nn::Linear(width, 3 * width))),
        out_(register_module("out", torch::nn::Linear(width, width))),
        mlp_norm_(register_module("mlp_norm", norm(width))),
        up_(register_module("up", torch::nn::Linear(width, 4 * width))),
        down_(register_module("down", torch::nn::Linear(4 * width, width))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    // Queries, keys and values of each head: [batch, heads, tokens, width / heads].
    const auto of_heads =
        qkv_(attention_norm_(x)).unflatten(2, {3, heads_, -1}).permute({2, 0, 3, 1, 4}).unbind();
    const torch::Tensor attended = at::scaled_dot_product_attention(
        of_heads[0], of_heads[1], of_heads[2], {}, 0.0, /*is_causal=*/true);
    const torch::Tensor y = x + out_(attended.transpose(1, 2).flatten(2));
    return y + down_(at::gelu(up_(mlp_norm_(y)), "tanh"));
  }

 private:
  static torch::nn::LayerNorm norm(std::int64_t width) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
  }
  std::int64_t heads_;
  torch::nn::LayerNorm attention_norm_;
  torch::nn::Linear qkv_, out_;
  torch::nn::LayerNorm mlp_norm_;
  torch::nn::Linear up_, down_;
};

/// The small model of GPT-2 (Radford et al., Language Models are Unsupervised Multitask Learners,
/// 2019) without dropout. The embeddings of the tokens are also the weights of the last layer.
struct Gpt2 final : torch::nn::Module {
  static constexpr std::int64_t kTokens = 50257;
  static constexpr std::int64_t kLongest = 1024;
  Gpt2()
      : tokens_(register_module("tokens", torch::nn::Embedding(kTokens, kWidth))),
        positions_(register_module("positions", torch::nn::Embedding(kLongest, kWidth))),
        last_norm_(torch::nn::LayerNormOptions({kWidth})) {
    torch::nn::init::normal_(tokens_->weight, 0, 0.02);
    torch::nn::init::normal_(positions_->weight, 0, 0.02);
    for (int i = 0; i < kLayers; ++i) {
      blocks_->push_back(std::make_shared<Gpt2Block>(kWidth, kHeads));
    }
    register_module("blocks", blocks_);
    register_module("last_norm", last_norm_);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor embedded = tokens_(x) + positions_->weight.narrow(0, 0, x.size(1));
    return torch::linear(last_norm_(blocks_->forward(embedded)), tokens_->weight);
  }

 private:
  static constexpr std::int64_t kWidth = 768;
  static constexpr std::int64_t kHeads = 12;
  static constexpr int kLayers = 12;
  torch::nn::Embedding tokens_, positions_;
  torch::nn::Sequential blocks_;
  torch::nn::LayerNorm last_norm_;
};

Workload gpt2() {
  Workload workload = words(std::make_shared<Gpt2>(), Gpt2::kTokens);
  workload.batch = 4;
  workload.input_shape = {Gpt2::kLongest};
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
      {"gpt2", gpt2},
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
