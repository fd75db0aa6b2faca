#include "batch_statistics.hpp"

namespace hvd {

namespace {

std::vector<std::int64_t> all_but_channels(const torch::Tensor& values) {
  std::vector<std::int64_t> dimensions{0};
  for (std::int64_t i = 2; i < values.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

}  // namespace

torch::ScalarType statistics_type(const torch::Tensor& input) {
  return input.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

torch::Tensor by_channel(const torch::Tensor& values, const torch::Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = values.size(0);
  return values.view(shape);
}

torch::Tensor sum_by_channel(const torch::Tensor& values) {
  return values.sum(all_but_channels(values));
}

torch::Tensor describe_batch(const torch::Tensor& input) {
  const std::int64_t channels = input.size(1);
  const auto options = input.options().dtype(statistics_type(input));
  if (input.numel() == 0) return torch::zeros({1 + 2 * channels}, options);
  const torch::Tensor wide = input.to(options.dtype());
  const auto [variance, mean] =
      torch::var_mean(wide, all_but_channels(wide), /*unbiased=*/false, /*keepdim=*/false);
  const torch::Tensor count = torch::full({1}, input.numel() / channels, options);
  return torch::cat({count, mean, variance * count});
}

BatchStatistics combine_batches(const torch::Tensor& rows) {
  const std::int64_t channels = (rows.size(1) - 1) / 2;
  const torch::Tensor counts = rows.narrow(1, 0, 1);
  const torch::Tensor means = rows.narrow(1, 1, channels);
  const torch::Tensor deviations = rows.narrow(1, 1 + channels, channels);
  BatchStatistics all;
  all.count = counts.sum(torch::kFloat64).item<double>();
  all.mean = (means * counts).sum(0) / all.count;
  all.variance = (deviations + counts * (means - all.mean).square()).sum(0) / all.count;
  return all;
}

}  // namespace hvd
