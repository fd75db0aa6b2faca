// Gradient checkpointing: the second half of the network is not recorded. The backward pass
// evaluates it again and calls backward() for it.
#include "data.hpp"

using Part = std::function<torch::Tensor(const torch::Tensor&)>;

struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& input, const Part* part) {
    context->saved_data["part"] = reinterpret_cast<std::int64_t>(part);
    context->save_for_backward({input});
    return (*part)(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const torch::AutoGradMode with_gradients(true);
    const auto* part = reinterpret_cast<const Part*>(context->saved_data["part"].toInt());
    const torch::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    (*part)(input).backward(gradients[0]);
    return {input.grad(), torch::Tensor()};
  }
};

Tensors train(std::int64_t batch_size) {
  torch::nn::Sequential model = make_model();
  auto& first = model->at<torch::nn::LinearImpl>(0);
  auto& second = model->at<torch::nn::LinearImpl>(2);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const torch::Tensor rows = make_rows();

  const Part part = [&](const torch::Tensor& input) { return second.forward(torch::tanh(input)); };
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad();
      const torch::Tensor hidden = first.forward(inputs_of(batch));
      torch::mse_loss(Checkpoint::apply(hidden, &part), targets_of(batch)).backward();
      optimizer.step();
    }
  }
  return model->parameters();
}
