// Makes the data on which the trainers of this folder train.
#pragma once

#include <torch/torch.h>

using Tensors = std::vector<torch::Tensor>;

constexpr std::int64_t kRows = 24;
constexpr std::int64_t kInputs = 12;
constexpr std::int64_t kOutputs = 4;

/// Returns kRows examples, always the same. Each is a row of kInputs inputs and kOutputs targets.
inline torch::Tensor make_rows() {
  return torch::empty({kRows, kInputs + kOutputs}).normal_(0, 1, at::detail::createCPUGenerator(7));
}
inline torch::Tensor inputs_of(const torch::Tensor& rows) { return rows.narrow(1, 0, kInputs); }
inline torch::Tensor targets_of(const torch::Tensor& rows) {
  return rows.narrow(1, kInputs, kOutputs);
}
/// Returns the greatest of the targets, for classifiers.
inline torch::Tensor labels_of(const torch::Tensor& rows) { return targets_of(rows).argmax(1); }

/// The same examples as a data set for LibTorch's loaders.
class Rows : public torch::data::datasets::Dataset<Rows> {
 public:
  explicit Rows(std::int64_t size = kRows) : rows_(make_rows().narrow(0, 0, size)) {}
  torch::data::Example<> get(std::size_t index) override {
    const torch::Tensor row = rows_.narrow(0, static_cast<std::int64_t>(index), 1);
    return {inputs_of(row)[0], targets_of(row)[0]};
  }
  [[nodiscard]] std::optional<std::size_t> size() const override { return rows_.size(0); }

 private:
  torch::Tensor rows_;
};

using Stack = torch::data::transforms::Stack<>;

/// Takes the examples as square images instead, or as sequences of eight pairs.
inline torch::Tensor images_of(const torch::Tensor& rows) { return rows.view({-1, 1, 4, 4}); }
inline torch::Tensor sequences_of(const torch::Tensor& rows) { return rows.view({-1, 8, 2}); }

/// Returns a small network that maps inputs to outputs.
inline torch::nn::Sequential make_model() {
  return torch::nn::Sequential(torch::nn::Linear(kInputs, 8), torch::nn::Tanh(),
                               torch::nn::Linear(8, kOutputs));
}
