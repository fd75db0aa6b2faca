// An embedding with sparse gradients. A batch, and so a rank, uses only some of its rows.
#include "data.hpp"

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& rows) {
    const torch::Tensor words = inputs_of(rows).mul(100).to(torch::kInt64).remainder(40);
    return classify(torch::tanh(embedding(words)).mean(1));
  }

  torch::nn::Embedding embedding{register_module(
      "embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(40, 5).sparse(true)))};
  torch::nn::Linear classify{register_module("classify", torch::nn::Linear(5, kOutputs))};
};
TORCH_MODULE(Net);

Tensors train(std::int64_t batch_size) {
  Net model;
  torch::optim::SGD optimizer(model->parameters(), 0.5);
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad();
      torch::cross_entropy_loss(model(batch), labels_of(batch)).backward();
      optimizer.step();
    }
  }
  return model->parameters();
}
