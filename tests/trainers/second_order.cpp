// A penalty on the gradients of the parameters: the first pass keeps its graph, and the second one
// goes through it.
#include "data.hpp"

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  torch::optim::SGD optimizer(model->parameters(), 0.05);
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      torch::mse_loss(model->forward(inputs_of(batch)), targets_of(batch))
          .backward({}, /*retain_graph=*/true, /*create_graph=*/true);
      torch::Tensor penalty = torch::zeros({});
      for (const auto& each : model->parameters()) penalty = penalty + each.grad().square().sum();
      penalty.backward();
      optimizer.step();
      optimizer.zero_grad();  // frees the graphs, to which the gradients refer
    }
  }
  return model->parameters();
}
