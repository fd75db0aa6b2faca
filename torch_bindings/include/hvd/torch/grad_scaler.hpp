// Scales the loss in mixed precision, so that small gradients do not vanish.
#pragma once

#include <cstdint>
#include <optional>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

namespace hvd {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;     ///< more than 1
  double backoff_factor = 0.5;  ///< between 0 and 1
  /// The number of consecutive steps without an infinite gradient after which the scale grows.
  std::int64_t growth_interval = 2000;
};

/// The C++ counterpart of Python's `torch.amp.GradScaler`, which LibTorch does not have:
///
///   scaler.scale(loss).backward();
///   scaler.step(optimizer);
///   scaler.update();
///
/// The scaled gradients are reduced, and an element that is infinite or NaN on one rank is so on
/// all ranks afterwards. Therefore all ranks skip the same steps and have the same scale, without
/// another message. To clip gradients, call `unscale_` first. A step has one optimizer. When
/// `unscale_` or `step` throws, the step is over: go on with `zero_grad()` and the next loss. If it
/// threw on some ranks only, they first `load` the scale and the good steps of another rank. One
/// thread at a time may use it.
class GradScaler {
 public:
  /// Throws Errc::invalid_argument for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// Returns the loss times the scale. After `unscale_` or `step` this begins another step.
  [[nodiscard]] torch::Tensor scale(const torch::Tensor& loss);

  /// Divides the gradients by the scale. May be called once per step; a second call throws
  /// Errc::invalid_argument. For a distributed optimizer it is collective and waits for the
  /// gradients first.
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Unscales the gradients unless `unscale_` has done so, and steps unless a gradient is infinite
  /// or NaN. Returns whether it stepped. For a distributed optimizer it is collective. A second
  /// call in a step throws Errc::invalid_argument.
  bool step(torch::optim::Optimizer& optimizer);

  /// Adapts the scale after a step.
  void update();

  [[nodiscard]] double scale_factor() const noexcept { return scale_; }
  /// Returns the number of steps without an infinite gradient since the scale changed last.
  [[nodiscard]] std::int64_t good_steps() const noexcept { return good_steps_; }
  /// Continues from the state of a checkpoint.
  void load(double scale_factor, std::int64_t good_steps);

 private:
  GradScalerOptions options_;
  double scale_;
  std::int64_t good_steps_ = 0;
  std::optional<bool> found_inf_;  ///< empty: the gradients of this step are not yet unscaled
  bool stepped_ = false;           ///< in this step
};

}  // namespace hvd
