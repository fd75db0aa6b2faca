// A TorchScript module.
#include <torch/script.h>

#include "data.hpp"

torch::jit::Module make_script() {
  torch::jit::Module module("Perceptron");
  const auto add = [&module](const char* name, const torch::Tensor& values) {
    module.register_parameter(name, values.set_requires_grad(true), /*is_buffer=*/false);
  };
  add("weight1", torch::randn({kInputs, 8}) / 3);
  add("weight2", torch::randn({8, kOutputs}) / 3);
  module.define(R"(
    def forward(self, inputs):
      return torch.tanh(inputs @ self.weight1) @ self.weight2
  )");
  return module;
}

Tensors train(std::int64_t batch_size) {
  torch::jit::Module model = make_script();
  Tensors parameters;
  for (const torch::Tensor& each : model.parameters()) parameters.push_back(each);
  torch::optim::SGD optimizer(parameters, 0.1);
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad();
      const torch::Tensor outputs = model.forward({inputs_of(batch)}).toTensor();
      torch::mse_loss(outputs, targets_of(batch)).backward();
      optimizer.step();
    }
  }
  return parameters;
}
