// Three losses with a backward pass each before a step, two of them through one graph.
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad();
      const torch::Tensor output = model->forward(inputs_of(batch));
      torch::mse_loss(output, targets_of(batch)).backward({}, /*retain_graph=*/true);
      output.abs().mean().mul(0.1).backward();
      model->parameters()[0].square().sum().mul(0.01).backward();  // of one parameter
      optimizer.step();
    }
  }
  return model->parameters();
}
