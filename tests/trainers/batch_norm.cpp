// Batch normalization. Each rank normalises its own batches, so the result is not that of one
// process, but parameters, buffers and the evaluation are the same on every rank.
#include "data.hpp"

struct NetImpl : torch::nn::SequentialImpl {
  NetImpl()
      : SequentialImpl(torch::nn::Linear(kInputs, 8), torch::nn::BatchNorm1d(8), torch::nn::ReLU(),
                       torch::nn::Linear(8, kOutputs)) {}
};
TORCH_MODULE(Net);

Tensors train(std::int64_t batch_size) {
  Net model;
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad();
      torch::mse_loss(model->forward(inputs_of(batch)), targets_of(batch)).backward();
      optimizer.step();
    }
  }
  model->eval();
  const torch::Tensor all = make_rows();
  Tensors results{torch::mse_loss(model->forward(inputs_of(all)), targets_of(all))};
  for (const auto& each : model->parameters()) results.push_back(each);
  for (const auto& each : model->buffers()) results.push_back(each);
  return results;
}
