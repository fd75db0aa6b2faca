// Computes averages of losses and accuracies over all ranks.
#pragma once

#include <array>
#include <span>
#include <string>
#include <utility>

#include <hvd/hvd.hpp>

namespace hvd {

/// Returns the mean of `value` over the ranks. Collective; throws what `allreduce` throws.
[[nodiscard]] inline double average_metric(double value, const std::string& name = {},
                                           Context& context = hvd::context()) {
  allreduce(std::span(&value, 1), {.name = name, .context = &context});
  return value;
}

/// A mean over examples. Ranks may have different numbers of examples, also none. `update` adds to
/// the sum and the weight of this rank, and `average` adds up those of all ranks, in f64. One
/// thread at a time may use it.
class Metric {
 public:
  /// `name` is the name of the collective: the same on all ranks, and different for each metric.
  explicit Metric(std::string name) : name_(std::move(name)) {}

  /// Adds a mean over `weight` examples, such as the loss of a batch and the size of the batch. A
  /// weight of 0 adds nothing, because the mean of an empty batch is NaN.
  void update(double mean, double weight = 1) {
    if (weight == 0) return;
    sum_ += mean * weight;
    weight_ += weight;
  }
  /// Returns the mean over all ranks, or NaN when no rank has an example. Collective; throws what
  /// `allreduce` throws.
  [[nodiscard]] double average(Context& context = hvd::context()) const {
    std::array<double, 2> sums{sum_, weight_};
    allreduce(std::span<double>(sums), {.name = name_, .op = ReduceOp::sum, .context = &context});
    return sums[0] / sums[1];
  }
  /// Returns the mean over the examples of this rank, or NaN when it has none.
  [[nodiscard]] double local_average() const { return sum_ / weight_; }
  void reset() { sum_ = weight_ = 0; }

 private:
  std::string name_;
  double sum_ = 0;
  double weight_ = 0;
};

}  // namespace hvd
