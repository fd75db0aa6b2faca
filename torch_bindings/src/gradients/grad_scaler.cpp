#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/torch/grad_scaler.hpp>
#include <hvd/torch/optimizer_parts.hpp>

namespace hvd {
namespace {

[[noreturn]] void refuse_scaling(const std::string& message) {
  throw Error(Errc::invalid_argument, "GradScaler: " + message);
}

void check_scale(double scale) {
  if (!(std::isfinite(scale) && scale > 0)) refuse_scaling(fmt::format("the scale is {}", scale));
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), scale_(options.init_scale) {
  check_scale(scale_);
  if (!(options.growth_factor > 1))
    refuse_scaling(fmt::format("growth_factor {}", options.growth_factor));
  if (!(options.backoff_factor > 0 && options.backoff_factor < 1)) {
    refuse_scaling(fmt::format("backoff_factor {}", options.backoff_factor));
  }
  if (options.growth_interval < 1) {
    refuse_scaling(fmt::format("growth_interval {}", options.growth_interval));
  }
}

bool detail::scale_own_gradients(torch::optim::Optimizer& optimizer, double factor) {
  const torch::NoGradGuard no_grad;
  // The host waits for a device to read a value from it, so it reads one from each.
  std::vector<torch::Tensor> finite;
  std::unordered_set<const c10::TensorImpl*> seen;  // LibTorch lists a parameter once for each name
  for (const auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      torch::Tensor gradient = parameter.grad();
      if (!gradient.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
      torch::Tensor values = gradient.is_sparse() ? gradient._values() : gradient;
      values.mul_(factor);
      const torch::Tensor here = torch::isfinite(values).all();
      const auto before = std::find_if(finite.begin(), finite.end(), [&](const auto& each) {
        return each.device() == here.device();
      });
      if (before == finite.end()) {
        finite.push_back(here);
      } else {
        before->logical_and_(here);
      }
    }
  }
  return std::all_of(finite.begin(), finite.end(),
                     [](const torch::Tensor& each) { return each.item<bool>(); });
}

torch::Tensor GradScaler::scale(const torch::Tensor& loss) {
  found_inf_.reset();  // the step before is over, or was left
  stepped_ = false;
  return loss * scale_;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (found_inf_) refuse_scaling("the gradients are unscaled already; update() comes first");
  auto* const distributed = dynamic_cast<ScalableGradients*>(&optimizer);
  found_inf_ = distributed ? !distributed->scale_gradients(1 / scale_)
                           : !detail::scale_own_gradients(optimizer, 1 / scale_);
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (stepped_) refuse_scaling("step() again; update() comes first");
  if (!found_inf_) unscale_(optimizer);
  stepped_ = true;
  auto* const distributed = dynamic_cast<ScalableGradients*>(&optimizer);
  if (!distributed) {
    if (!*found_inf_) optimizer.step();
  } else if (*found_inf_) {
    distributed->skip_scaled();
  } else {
    distributed->step_scaled();
  }
  return !*found_inf_;
}

void GradScaler::update() {
  if (!found_inf_) refuse_scaling("update() without a step()");
  if (*found_inf_) {
    scale_ *= options_.backoff_factor;
    good_steps_ = 0;
  } else if (++good_steps_ == options_.growth_interval) {
    // The scale stays within the range of float.
    const double grown = scale_ * options_.growth_factor;
    if (std::isfinite(static_cast<float>(grown))) scale_ = grown;
    good_steps_ = 0;
  }
  found_inf_.reset();
  stepped_ = false;
}

void GradScaler::load(double scale_factor, std::int64_t good_steps) {
  check_scale(scale_factor);
  if (good_steps < 0) refuse_scaling(fmt::format("{} good steps", good_steps));
  scale_ = scale_factor;
  good_steps_ = good_steps % options_.growth_interval;
}

}  // namespace hvd
