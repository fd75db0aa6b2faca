// Classes as in PyTorch Lightning: a module makes its own optimizers, and a trainer has the loop.
// The loader shuffles; an epoch is one batch, so that its order does not matter.
#include "data.hpp"

struct LightningModule : torch::nn::Module {
  virtual std::vector<std::unique_ptr<torch::optim::Optimizer>> configure_optimizers() = 0;
  virtual torch::Tensor training_step(const torch::data::Example<>& batch, int optimizer) = 0;
};

class Trainer {
 public:
  template <class Loader>
  void fit(LightningModule& module, Loader& loader) {
    const auto optimizers = module.configure_optimizers();
    for (int epoch = 0; epoch < 10; ++epoch) {
      for (const auto& batch : loader) {
        for (std::size_t i = 0; i < optimizers.size(); ++i) {
          optimizers[i]->zero_grad();
          module.training_step(batch, static_cast<int>(i)).backward();
          optimizers[i]->step();
        }
      }
    }
  }
};

struct Regression : LightningModule {
  std::vector<std::unique_ptr<torch::optim::Optimizer>> configure_optimizers() override {
    std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers;
    optimizers.push_back(std::make_unique<torch::optim::Adam>(body->parameters(), 0.01));
    optimizers.push_back(std::make_unique<torch::optim::SGD>(head->parameters(), 0.1));
    return optimizers;
  }
  torch::Tensor training_step(const torch::data::Example<>& batch, int optimizer) override {
    const torch::Tensor output = head(torch::relu(body(batch.data)));
    return optimizer == 0 ? torch::mse_loss(output, batch.target)
                          : torch::l1_loss(output, batch.target);
  }

  torch::nn::Linear body{register_module("body", torch::nn::Linear(kInputs, 8))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(8, kOutputs))};
};

Tensors train(std::int64_t batch_size) {
  Regression module;
  auto dataset = Rows(12).map(Stack());
  auto loader = torch::data::make_data_loader(dataset, batch_size);
  Trainer().fit(module, *loader);
  return module.parameters();
}
