#include "gradients/gradient_weight.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/torch/collectives.hpp>

#include "gradients/gradient_setup.hpp"

namespace hvd::detail {

void GradientWeight::set(double weight) {
  if (!std::isfinite(weight) || weight < 0) {
    misuse(fmt::format("set_weight() got {}; a weight is finite and not negative", weight), owner_);
  }
  if (is_set_) {
    misuse(
        "set_weight() was called twice for one reduction; call it once before each backward pass "
        "that is sent",
        owner_);
  }
  submit(weight);
}

void GradientWeight::submit(double weight) {
  weight_ = weight;
  share_ = 0;
  is_set_ = true;
  sum_ = allreduce_async(torch::tensor(weight, torch::kFloat64), options_);
}

double GradientWeight::share(FirstError& error) noexcept {
  error.keep([this] {
    // A rank that has set no weight sends NaN. Otherwise the other ranks would wait for it.
    if (!is_set_) submit(std::numeric_limits<double>::quiet_NaN());
    if (!sum_.valid()) return;
    const double sum = std::exchange(sum_, {}).wait().item<double>();
    if (std::isnan(weight_)) {
      misuse(
          "the option weighted needs a call of set_weight() before each backward pass that is "
          "sent, and there was none",
          owner_);
    }
    if (std::isnan(sum)) {
      throw Error(Errc::mismatch,
                  fmt::format("{}: another rank has not called set_weight() before its backward "
                              "pass",
                              owner_));
    }
    if (sum == 0 || std::isinf(sum)) {
      misuse(fmt::format("the weights of all ranks add up to {}, so there is no mean", sum),
             owner_);
    }
    share_ = weight_ / sum;
  });
  return share_;
}

void GradientWeight::finish(FirstError& error) noexcept {
  share(error);
  is_set_ = false;
}

}  // namespace hvd::detail
