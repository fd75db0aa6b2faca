// A recurrent network that reads in both directions, and classifies by its last outputs.
#include "data.hpp"

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor output = std::get<0>(lstm(input));
    return classify(output.select(1, -1));
  }

  torch::nn::LSTM lstm{register_module(
      "lstm",
      torch::nn::LSTM(
          torch::nn::LSTMOptions(2, 5).num_layers(2).batch_first(true).bidirectional(true)))};
  torch::nn::Linear classify{register_module("classify", torch::nn::Linear(10, kOutputs))};
};
TORCH_MODULE(Net);

Tensors train(std::int64_t batch_size) {
  Net model;
  torch::optim::Adam optimizer(model->parameters(), 0.01);
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad();
      torch::cross_entropy_loss(model(sequences_of(batch)), labels_of(batch)).backward();
      optimizer.step();
    }
  }
  return model->parameters();
}
