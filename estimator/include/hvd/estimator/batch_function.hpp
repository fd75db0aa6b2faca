// Declares losses and metrics, which are functions of the outputs and labels of a batch.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/types.h>

namespace hvd {

/// Holds a callable of an output and its label, `f(torch::Tensor, torch::Tensor)`, or of all
/// outputs and all labels, `f(std::vector<torch::Tensor>, std::vector<torch::Tensor>)`. It returns
/// the mean over the batch's rows as a number or a tensor of one element. The first form is applied
/// to each output and its label, which gets the shape of the output if it has as many elements, and
/// the results are added up. Labels are moved to the device of the first output.
class BatchFunction {
 public:
  using Tensors = std::vector<torch::Tensor>;

  /// Holds no function.
  BatchFunction() = default;
  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, BatchFunction>)
      BatchFunction(F function) {  // NOLINT: implicit
    if constexpr (std::is_invocable_v<F&, const torch::Tensor&, const torch::Tensor&>) {
      pairwise_ = [function = std::move(function)](const torch::Tensor& output,
                                                   const torch::Tensor& label) mutable {
        return as_tensor(function(output, label));
      };
    } else {
      static_assert(std::is_invocable_v<F&, const Tensors&, const Tensors&>,
                    "a loss or a metric is called with an output and a label, or with a vector of "
                    "outputs and a vector of labels");
      whole_ = [function = std::move(function)](const Tensors& outputs,
                                                const Tensors& labels) mutable {
        return as_tensor(function(outputs, labels));
      };
    }
  }

  [[nodiscard]] bool empty() const noexcept { return !pairwise_ && !whole_; }
  /// Returns a tensor of one element. Throws Errc::invalid_argument, naming `what`, when the
  /// function returns more, or when it takes one output and one label and their numbers differ, or
  /// a label of floating-point numbers has more or fewer elements than its output and its shape was
  /// not given (`EstimatorOptions::label_shapes`).
  [[nodiscard]] torch::Tensor operator()(const Tensors& outputs, const Tensors& labels,
                                         bool has_label_shapes, const std::string& what) const;

 private:
  static torch::Tensor as_tensor(torch::Tensor value) { return value; }
  static torch::Tensor as_tensor(double value) { return torch::full({}, value, torch::kFloat64); }

  std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)> pairwise_;
  std::function<torch::Tensor(const Tensors&, const Tensors&)> whole_;
};

/// A number that the history shows beside the loss, for training and validation rows.
struct EstimatorMetric {
  std::string name;
  BatchFunction function;
};

/// The share of rows whose largest output is the label. With one output per row, an output above
/// 0.5 predicts the label 1.
[[nodiscard]] EstimatorMetric accuracy();

}  // namespace hvd
