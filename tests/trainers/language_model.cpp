// A language model whose hidden state goes on from batch to batch, with clipped gradients and a
// learning rate of the trainer's own.
#include "data.hpp"

constexpr std::int64_t kWords = 11;

struct NetImpl : torch::nn::Module {
  torch::nn::Embedding embedding{register_module("embedding", torch::nn::Embedding(kWords, 8))};
  torch::nn::LSTM lstm{
      register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(8, 8).batch_first(true)))};
  torch::nn::Linear decoder{register_module("decoder", torch::nn::Linear(8, kWords))};
};
TORCH_MODULE(Net);

torch::Tensor make_corpus() {
  return make_rows().flatten().mul(1000).to(torch::kInt64).remainder(kWords);
}

Tensors train(std::int64_t batch_size) {
  Net model;
  torch::optim::SGD optimizer(model->parameters(), 2.0);
  const torch::Tensor corpus = make_corpus();
  const torch::Tensor text = corpus.view({batch_size, -1});  // streams that are read side by side
  const std::int64_t window = 3;

  auto hidden = std::tuple(torch::zeros({1, batch_size, 8}), torch::zeros({1, batch_size, 8}));
  for (std::int64_t at = 0; at + window < text.size(1); at += window) {
    hidden = {std::get<0>(hidden).detach(), std::get<1>(hidden).detach()};
    torch::Tensor output;
    std::tie(output, hidden) =
        model->lstm->forward(model->embedding(text.narrow(1, at, window)), hidden);
    optimizer.zero_grad();
    torch::cross_entropy_loss(model->decoder(output).flatten(0, 1),
                              text.narrow(1, at + 1, window).flatten())
        .backward();
    torch::nn::utils::clip_grad_norm_(model->parameters(), 0.25);
    optimizer.step();
  }
  return model->parameters();
}
