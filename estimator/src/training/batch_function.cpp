#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/estimator/batch_function.hpp>

namespace hvd {

namespace {

double share_that_is_right(const torch::Tensor& output, const torch::Tensor& label) {
  const torch::NoGradGuard no_grad;
  const bool classes = output.dim() > 1 && output.size(1) > 1;
  const torch::Tensor wanted = label.reshape({-1});
  const torch::Tensor said =
      classes ? output.argmax(1).reshape({-1}) : output.reshape({-1}).gt(0.5).to(torch::kInt64);
  if (said.numel() != wanted.numel()) {
    throw Error(Errc::invalid_argument, fmt::format("accuracy: {} rows of output and {} labels",
                                                    said.numel(), wanted.numel()));
  }
  return said.eq(wanted.to(torch::kInt64)).to(torch::kFloat64).mean().item<double>();
}

std::int64_t elements_of_row(const torch::Tensor& tensor) {
  return c10::multiply_integers(tensor.sizes().slice(1));
}

/// Returns whether both have as many elements. For a batch without rows, those of one
/// row are compared.
bool fits(const torch::Tensor& output, const torch::Tensor& label) {
  if (label.numel() != output.numel()) return false;
  return label.numel() > 0 || elements_of_row(label) == elements_of_row(output);
}

/// Returns the label in the shape of the output if it has as many elements. A loss such as
/// `mse_loss` would otherwise broadcast an output [rows, 1] and a label [rows] to [rows, rows].
/// Throws where it would broadcast numbers although the user has not given their shape. Integers
/// are the numbers of classes, which have a shape of their own.
torch::Tensor label_for(const torch::Tensor& output, const torch::Tensor& label,
                        bool has_given_shape, const std::string& what) {
  if (fits(output, label)) return label.reshape(output.sizes());
  if (label.is_floating_point() && !has_given_shape) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("{}: the output has the shape {}, and the label {}. Give label_shapes, or "
                    "use a function that takes vectors of outputs and labels",
                    what, c10::str(output.sizes()), c10::str(label.sizes())));
  }
  return label;
}

}  // namespace

torch::Tensor BatchFunction::operator()(const Tensors& outputs, const Tensors& given,
                                        bool has_label_shapes, const std::string& what) const {
  Tensors labels = given;
  if (!outputs.empty()) {
    for (torch::Tensor& label : labels) label = label.to(outputs.front().device());
  }
  const auto refuse = [&what](const std::string& why) {
    throw Error(Errc::invalid_argument, fmt::format("{}: {}", what, why));
  };
  torch::Tensor value;
  try {
    if (whole_) {
      value = whole_(outputs, labels);
    } else {
      if (outputs.size() != labels.size()) {
        refuse(
            fmt::format("it takes an output and its label, and there are {} outputs and {} label "
                        "columns; one that takes vectors gets all of them",
                        outputs.size(), labels.size()));
      }
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const torch::Tensor one =
            pairwise_(outputs[i], label_for(outputs[i], labels[i], has_label_shapes, what));
        value = value.defined() ? value + one : one;
      }
    }
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  }
  if (!value.defined() || value.numel() != 1) {
    refuse(fmt::format("it returned {} values; expected one, the mean over the rows",
                       value.defined() ? value.numel() : 0));
  }
  return value.reshape({});
}

EstimatorMetric accuracy() { return {"accuracy", share_that_is_right}; }

}  // namespace hvd
