// Compiles the C++ of the pages about Spark and the estimator, as guide_snippets.cpp does.
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>

#include <hvd/estimator.hpp>
#include <hvd/spark.hpp>

namespace guide_estimator {

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& input) { return fc1->forward(input); }
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(784, 10))};
};
TORCH_MODULE(Net);

void result() {
#include "spark_1.inc"
}

void rows() {
#include "spark_2.inc"
}

void fit() {
#include "estimator_1.inc"
}

namespace program {
const Net net;
const auto adam = [](auto parameters) { return std::make_unique<torch::optim::Adam>(parameters); };
const auto loss = [](auto output, auto label) { return torch::nll_loss(output, label); };

#pragma GCC diagnostic ignored "-Wunused-parameter"  // the page shows where the arguments arrive
#include "estimator_2.inc"
}  // namespace program

}  // namespace guide_estimator
