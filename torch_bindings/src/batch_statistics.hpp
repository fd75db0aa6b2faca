// Means and variances of several batches, and the gradient through them.
#pragma once

#include <torch/types.h>

namespace hvd {

/// By channel, in f32 or f64.
struct BatchStatistics {
  torch::Tensor mean;
  torch::Tensor variance;  ///< the mean square deviation
  double count = 0;        ///< values per channel
};

/// [1 + 2 · C]: values per channel, their means, their sums of squared deviations. Zeros when
/// empty.
[[nodiscard]] torch::Tensor describe_batch(const torch::Tensor& input);
/// From one such row per rank: Chan, Golub & LeVeque 1979, "Updating formulae and a pairwise
/// algorithm for computing sample variances".
[[nodiscard]] BatchStatistics combine_batches(const torch::Tensor& rows);

/// Shaped [1, C, 1, …] for a computation with `input`.
[[nodiscard]] torch::Tensor by_channel(const torch::Tensor& values, const torch::Tensor& input);
/// Summed over all but the channels.
[[nodiscard]] torch::Tensor sum_by_channel(const torch::Tensor& values);
/// f32, or f64 for f64.
[[nodiscard]] torch::ScalarType statistics_type(const torch::Tensor& input);

}  // namespace hvd
