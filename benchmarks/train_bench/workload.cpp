#include "workload.hpp"

#include <stdexcept>

#include <torch/nn/functional.h>

#include "mnist/model.hpp"
#include "resnet/model.hpp"

namespace hvd::bench {
namespace {

/// Makes a workload of any module that maps one tensor to another.
template <class Module>
Workload of(std::shared_ptr<Module> model) {
  Workload workload;
  workload.model = model;
  workload.forward = [model](const torch::Tensor& x) { return model->forward(x); };
  workload.loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::nn::functional::cross_entropy(output, target);
  };
  return workload;
}

Workload cnn() {
  Workload workload = of(mnist::Net(true).ptr());
  workload.loss = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::nll_loss(output, target);
  };
  workload.batch = 64;
  workload.input_shape = {1, 28, 28};
  workload.classes = 10;
  return workload;
}

Workload mlp25m() {
  using torch::nn::Linear;
  using torch::nn::ReLU;
  Workload workload = of(torch::nn::Sequential(Linear(1024, 4096), ReLU(), Linear(4096, 4096),
                                               ReLU(), Linear(4096, 1024), ReLU(), Linear(1024, 10))
                             .ptr());
  workload.batch = 64;
  workload.input_shape = {1024};
  workload.classes = 10;
  return workload;
}

template <class Module>
Workload images(std::shared_ptr<Module> model, std::int64_t batch) {
  Workload workload = of(std::move(model));
  workload.batch = batch;
  workload.input_shape = {3, 64, 64};
  workload.classes = 1000;
  return workload;
}

Workload by_name(const std::string& model) {
  if (model == "cnn") return cnn();
  if (model == "mlp25m") return mlp25m();
  if (model == "resnet18") return images(resnet::resnet18(1000), 16);
  if (model == "resnet50") return images(resnet::resnet50(1000), 8);
  throw std::invalid_argument("no model '" + model + "': cnn, mlp25m, resnet18 or resnet50");
}

}  // namespace

Workload make_workload(const std::string& model, std::int64_t batch) {
  Workload workload = by_name(model);
  if (batch > 0) workload.batch = batch;
  return workload;
}

}  // namespace hvd::bench
