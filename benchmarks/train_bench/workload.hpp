// Makes the models for training, with their data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn.h>

namespace hvd::bench {

struct Workload {
  std::shared_ptr<torch::nn::Module> model;
  std::function<torch::Tensor(const torch::Tensor&)> forward;  ///< to logits or log-probabilities
  std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)> loss;
  std::int64_t batch = 0;                 ///< examples
  std::vector<std::int64_t> input_shape;  ///< of one example
  std::int64_t classes = 0;
};

/// Makes one of these models: `cnn` (that of the MNIST tutorial, 22 k parameters, batches of 64),
/// `mlp25m` (25 M, batches of 64), `resnet18` (11.7 M, batches of 16 images of 64x64) or `resnet50`
/// (25.6 M, batches of 8 images of 64x64). A `batch` of 0 selects these sizes. Throws
/// std::invalid_argument for another name.
[[nodiscard]] Workload make_workload(const std::string& model, std::int64_t batch);

}  // namespace hvd::bench
