// Reads gzipped images in the IDX format of MNIST and Fashion-MNIST.
#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

namespace mnist {

struct Dataset {
  torch::Tensor
      images;  ///< f32 [N, 1, 28, 28], normalised with the training set's mean and deviation
  torch::Tensor labels;  ///< i64 [N]

  [[nodiscard]] std::int64_t size() const { return labels.size(0); }
  /// Returns the examples of these indices, i64 [B].
  [[nodiscard]] Dataset pick(const torch::Tensor& indices) const {
    return {images.index_select(0, indices), labels.index_select(0, indices)};
  }
  /// Does the same for indices as a sampler returns them.
  [[nodiscard]] Dataset pick(const std::vector<std::size_t>& indices) const {
    return pick(
        torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()), torch::kInt64));
  }
};

enum class Split { train, test };

/// Reads the files `train-*` or `t10k-*` in `folder`. When `limit` is not 0, it returns only the
/// first `limit` examples. Throws std::runtime_error, which names the file.
[[nodiscard]] Dataset load(const std::string& folder, Split split, std::int64_t limit = 0);

}  // namespace mnist
