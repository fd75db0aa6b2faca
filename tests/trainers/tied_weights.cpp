// An autoencoder whose decoder uses the encoder's weight: one parameter with two names and two
// gradients.
#include "data.hpp"

struct Encoder : torch::nn::Module {
  torch::Tensor weight{register_parameter("weight", torch::randn({8, kInputs}) / 3)};
};
struct Decoder : torch::nn::Module {
  explicit Decoder(const torch::Tensor& shared) : weight(register_parameter("weight", shared)) {}
  torch::Tensor weight;
};
struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor code = torch::tanh(torch::linear(input, encoder->weight));
    return torch::linear(code, decoder->weight.t());
  }

  std::shared_ptr<Encoder> encoder{register_module("encoder", std::make_shared<Encoder>())};
  std::shared_ptr<Decoder> decoder{
      register_module("decoder", std::make_shared<Decoder>(encoder->weight))};
};
TORCH_MODULE(Net);

Tensors train(std::int64_t batch_size) {
  Net model;
  torch::optim::SGD optimizer({model->encoder->weight}, 0.1);
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      optimizer.zero_grad();
      torch::mse_loss(model(inputs_of(batch)), inputs_of(batch)).backward();
      optimizer.step();
    }
  }
  return {model->encoder->weight};
}
