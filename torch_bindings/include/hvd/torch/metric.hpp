// Losses and accuracies over all ranks.
#pragma once

#include <string>
#include <utility>

#include <hvd/core/context.hpp>

namespace hvd {

/// The mean of `value` over the ranks, for a number that each has one of. Collective.
[[nodiscard]] double average_metric(Context& context, double value, const std::string& name = {});
[[nodiscard]] double average_metric(double value, const std::string& name = {});

/// A mean over examples, of which ranks may have different numbers, also none: sum and weight are
/// added up here, and over the ranks by `average`, in f64.
class Metric {
 public:
  /// `name` names the collective; the same on all ranks, another for each metric.
  explicit Metric(std::string name) : name_(std::move(name)) {}

  /// `mean` of `weight` examples: the loss of a batch and its size, say.
  void update(double mean, double weight = 1) {
    sum_ += mean * weight;
    weight_ += weight;
  }
  /// Of all ranks; NaN when no rank has an example. Collective.
  [[nodiscard]] double average(Context& context) const;
  [[nodiscard]] double average() const;
  /// Of this rank alone.
  [[nodiscard]] double local_average() const { return sum_ / weight_; }
  void reset() { sum_ = weight_ = 0; }

 private:
  std::string name_;
  double sum_ = 0;
  double weight_ = 0;
};

}  // namespace hvd
