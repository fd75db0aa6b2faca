// Did the ranks really train on different images?
#pragma once

#include <torch/types.h>

namespace mnist {

/// Counts which images this rank used in an epoch, then adds the ranks' counts up.
class ShardCheck {
 public:
  explicit ShardCheck(std::int64_t images)
      : uses_(torch::zeros({images}, torch::kInt32)), one_(torch::ones({1}, torch::kInt32)) {}

  void use(const torch::Tensor& indices) {
    uses_.index_add_(0, indices, one_.expand(indices.size(0)));
  }

  /// Collective, at the end of an epoch; forgets it. `padding` images may come twice, since ranks
  /// get equally many; all others at most once, and exactly once in a `complete` epoch.
  [[nodiscard]] bool disjoint(std::int64_t padding, bool complete);

 private:
  torch::Tensor uses_;
  torch::Tensor one_;
};

}  // namespace mnist
