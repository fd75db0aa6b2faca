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
  /// Inputs are integers below it, and each has a class of its own. 0: inputs are real numbers.
  std::int64_t vocabulary = 0;
};

/// Returns the names of the models. benchmarks/README.md describes them.
[[nodiscard]] std::vector<std::string> workload_names();

/// Makes a model. A `batch` of 0 selects the model's usual one. Throws std::out_of_range for a name
/// that is not one of `workload_names`.
[[nodiscard]] Workload make_workload(const std::string& model, std::int64_t batch);

}  // namespace hvd::bench
