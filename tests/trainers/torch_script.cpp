// A TorchScript module. A module of C++ holds its parameters.
#include <torch/script.h>

#include "data.hpp"

struct Net : torch::nn::Module {
  Net() {
    const auto add = [this](const char* name, const torch::Tensor& values) {
      script.register_parameter(name, register_parameter(name, values), /*is_buffer=*/false);
    };
    add("weight1", torch::randn({kInputs, 8}) / 3);
    add("weight2", torch::randn({8, kOutputs}) / 3);
    script.define(R"(
      def forward(self, inputs):
        return torch.tanh(inputs @ self.weight1) @ self.weight2
    )");
  }
  torch::Tensor forward(const torch::Tensor& inputs) { return script.forward({inputs}).toTensor(); }

  torch::jit::Module script{"Perceptron"};
};

Tensors train(std::int64_t batch_size) {
  Net model;
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad();
      torch::mse_loss(model.forward(inputs_of(batch)), targets_of(batch)).backward();
      optimizer.step();
    }
  }
  return model.parameters();
}
