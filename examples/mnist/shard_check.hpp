// Checks that the ranks have trained on different images.
#pragma once

#include <torch/types.h>

namespace mnist {

/// Counts how often this rank uses each image in an epoch, and adds up the counts of the ranks.
class ShardCheck {
 public:
  explicit ShardCheck(std::int64_t images)
      : uses_(torch::zeros({images}, torch::kInt32)), one_(torch::ones({1}, torch::kInt32)) {}

  void use(const torch::Tensor& indices) {
    uses_.index_add_(0, indices, one_.expand(indices.size(0)));
  }

  /// Returns whether the ranks have used different images. Must be called at the end of an epoch;
  /// it also clears the counts. Collective. `padding` images may be used twice, because all ranks
  /// get equally many. All other images are used at most once, and exactly once in a `complete`
  /// epoch.
  [[nodiscard]] bool disjoint(std::int64_t padding, bool complete);

 private:
  torch::Tensor uses_;
  torch::Tensor one_;
};

}  // namespace mnist
