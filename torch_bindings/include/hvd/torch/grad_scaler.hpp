// Mixed precision: a loss that is scaled so that small gradients do not vanish.
#pragma once

#include <concepts>
#include <cstdint>

#include <torch/types.h>

#include <hvd/torch/distributed_optimizer.hpp>
#include <hvd/torch/scalable_gradients.hpp>
#include <hvd/torch/sharded_optimizer.hpp>

namespace hvd {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     ///< more than 1
  double backoff_factor = 0.5;  ///< between 0 and 1
  /// Steps without an infinite gradient after which the scale grows.
  std::int64_t growth_interval = 2000;
};

/// What `torch.amp.GradScaler` is in Python, which LibTorch's C++ front end has not:
///
///   scaler.scale(loss).backward();
///   scaler.step(optimizer);
///   scaler.update();
///
/// Scaled gradients are reduced, and an element that is infinite or NaN on one rank is so on all:
/// therefore all ranks skip the same steps and have the same scale, without a message of their own.
/// To clip between, call `unscale_` first. One optimizer a step; any thread, one at a time.
class GradScaler {
 public:
  /// Throws Errc::invalid_argument for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {});

  [[nodiscard]] torch::Tensor scale(const torch::Tensor& loss) const { return loss * scale_; }

  /// Divides the gradients by the scale; of a distributed optimizer, also behind this reference, it
  /// waits for them first, which is collective. Once per step.
  void unscale_(torch::optim::Optimizer& optimizer);
  template <std::derived_from<ScalableGradients> Distributed>
  void unscale_(Distributed& optimizer) {
    unscale_distributed(optimizer);
  }

  /// Unscales, if that was not done, and steps, unless a gradient is infinite or NaN. Returns
  /// whether it stepped. Collective for a distributed optimizer.
  bool step(torch::optim::Optimizer& optimizer);
  template <std::derived_from<ScalableGradients> Distributed>
  bool step(Distributed& optimizer) {
    return step_distributed(optimizer);
  }

  /// Adapts the scale after a step.
  void update();

  [[nodiscard]] double scale_factor() const noexcept { return scale_; }
  /// Steps without an infinite gradient since the scale changed last.
  [[nodiscard]] std::int64_t good_steps() const noexcept { return good_steps_; }
  /// To go on where a checkpoint was taken.
  void load(double scale_factor, std::int64_t good_steps);

 private:
  void unscale_distributed(ScalableGradients& optimizer);
  bool step_distributed(ScalableGradients& optimizer);
  /// Throws Errc::invalid_argument when it was done already.
  void begin_unscaling();

  GradScalerOptions options_;
  double scale_;
  std::int64_t good_steps_ = 0;
  bool unscaled_ = false;
  bool found_inf_ = false;
};

}  // namespace hvd
