// An operation with a gradient of the program's own, used with a parameter that belongs to no
// layer.
#include "data.hpp"

struct Swish : torch::autograd::Function<Swish> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& input, const torch::Tensor& slope) {
    context->save_for_backward({input, slope});
    return input * torch::sigmoid(input * slope);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor gate = torch::sigmoid(saved[0] * saved[1]);
    const torch::Tensor slope = saved[0] * gate * (1 - gate);
    return {gradients[0] * (gate + saved[1] * slope), (gradients[0] * saved[0] * slope).sum(0)};
  }
};

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) {
    return second(Swish::apply(first(input), slope));
  }

  torch::nn::Linear first{register_module("first", torch::nn::Linear(kInputs, 8))};
  torch::Tensor slope{register_parameter("slope", torch::ones({8}))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(8, kOutputs))};
};
TORCH_MODULE(Net);

Tensors train(std::int64_t batch_size) {
  Net model;
  torch::optim::Adagrad optimizer(model->parameters(), torch::optim::AdagradOptions(0.05));
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad();
      torch::mse_loss(model(inputs_of(batch)), targets_of(batch)).backward();
      optimizer.step();
    }
  }
  return model->parameters();
}
