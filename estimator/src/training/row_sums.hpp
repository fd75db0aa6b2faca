// Adds up the loss and the metrics of rows, over batches and then over ranks.
#pragma once

#include <vector>

#include <hvd/core/context.hpp>
#include <hvd/estimator/estimator_options.hpp>
#include <hvd/estimator/history.hpp>
#include <hvd/torch/collectives.hpp>

namespace hvd::detail {

class RowSums {
 public:
  explicit RowSums(const EstimatorOptions& options)
      : metrics_(options.metrics),
        has_label_shapes_(!options.label_shapes.empty()),
        sums_(options.metrics.size() + 2) {}

  /// Adds a batch. `loss` is the mean over its rows.
  void add(std::int64_t rows, double loss, const std::vector<torch::Tensor>& outputs,
           const std::vector<torch::Tensor>& labels) {
    const torch::NoGradGuard no_grad;
    const auto weight = static_cast<double>(rows);
    sums_[0] += weight;
    sums_[1] += loss * weight;
    last_loss_ = loss;
    for (std::size_t i = 0; i < metrics_.size(); ++i) {
      const torch::Tensor value =
          metrics_[i].function(outputs, labels, has_label_shapes_, metrics_[i].name);
      sums_[i + 2] += value.item<double>() * weight;
    }
  }

  /// Returns the loss of this rank's last batch.
  [[nodiscard]] double last_loss() const noexcept { return last_loss_; }
  /// Returns the means over the rows of all ranks. Collective.
  [[nodiscard]] RowMeans means(Context& context, const char* name) const {
    const torch::Tensor all = allreduce(torch::tensor(sums_, torch::kFloat64),
                                        {.name = name, .op = ReduceOp::sum, .context = &context});
    const double* const total = all.const_data_ptr<double>();
    RowMeans means{.rows = static_cast<std::int64_t>(total[0]), .loss = total[1] / total[0]};
    for (std::size_t i = 0; i < metrics_.size(); ++i) {
      means.metrics.emplace_back(metrics_[i].name, total[i + 2] / total[0]);
    }
    return means;
  }

 private:
  const std::vector<EstimatorMetric>& metrics_;
  const bool has_label_shapes_;
  std::vector<double> sums_;  ///< rows, loss, metrics
  double last_loss_ = 0;
};

}  // namespace hvd::detail
