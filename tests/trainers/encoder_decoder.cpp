// Two models with one loss: an encoder and a decoder with an optimizer each. All of the encoder is
// checkpointed, so its gradients come only from nested backward passes.
#include "data.hpp"

struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& input, torch::nn::SequentialImpl* part) {
    context->saved_data["part"] = reinterpret_cast<std::int64_t>(part);
    context->save_for_backward({input});
    return part->forward(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const torch::AutoGradMode with_gradients(true);
    auto* part = reinterpret_cast<torch::nn::SequentialImpl*>(context->saved_data["part"].toInt());
    const torch::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    part->forward(input).backward(gradients[0]);
    return {input.grad(), torch::Tensor()};
  }
};

Tensors train(std::int64_t batch_size) {
  using namespace torch::nn;
  Sequential encoder(Linear(kInputs, 5), Tanh(), Linear(5, 5));
  Sequential decoder(Tanh(), Linear(5, kInputs));
  const auto options = torch::optim::AdamOptions(0.01);
  torch::optim::Adam encoder_steps(encoder->parameters(), options);
  torch::optim::Adam decoder_steps(decoder->parameters(), options);
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      encoder_steps.zero_grad();
      decoder_steps.zero_grad();
      const torch::Tensor inputs = inputs_of(batch).clone().requires_grad_();
      const torch::Tensor code = Checkpoint::apply(inputs, encoder.get());
      torch::mse_loss(decoder->forward(code), inputs_of(batch)).backward();
      decoder_steps.step();
      encoder_steps.step();
    }
  }
  Tensors all = encoder->parameters();
  for (const auto& each : decoder->parameters()) all.push_back(each);
  return all;
}
