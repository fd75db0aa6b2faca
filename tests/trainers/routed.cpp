// A mixture of experts: each example goes to one of three, so a batch, and so a rank, may use only
// some of them.
#include "data.hpp"

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < 3; ++i) experts->push_back(torch::nn::Linear(8, kOutputs));
  }

  torch::nn::Linear body{register_module("body", torch::nn::Linear(kInputs, 8))};
  torch::nn::ModuleList experts{register_module("experts", torch::nn::ModuleList())};
};
TORCH_MODULE(Net);

Tensors train(std::int64_t batch_size) {
  Net model;
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const torch::Tensor rows = make_rows();

  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const torch::Tensor& batch : rows.split(batch_size)) {
      const torch::Tensor chosen = inputs_of(batch).narrow(1, 0, 3).argmax(1);
      const torch::Tensor hidden = torch::tanh(model->body(inputs_of(batch)));
      torch::Tensor loss = torch::zeros({});
      for (int i = 0; i < (epoch < 2 ? 2 : 3); ++i) {
        const torch::Tensor mine = (chosen == i).nonzero().flatten();
        if (mine.numel() == 0) continue;
        const torch::Tensor output =
            model->experts->ptr<torch::nn::LinearImpl>(i)->forward(hidden.index_select(0, mine));
        loss = loss + (output - targets_of(batch).index_select(0, mine)).square().sum();
      }
      optimizer.zero_grad();
      (loss / batch.size(0)).backward();
      optimizer.step();
    }
  }
  return model->parameters();
}
