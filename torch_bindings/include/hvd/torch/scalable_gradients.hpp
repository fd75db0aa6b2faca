// What a gradient scaler needs of an optimizer whose gradients are reduced.
#pragma once

#include <torch/optim/optimizer.h>

namespace hvd {

/// The distributed optimizers are such, so that `GradScaler` knows them behind an `Optimizer&` too.
/// All three are collective, and come once per step.
class ScalableGradients {
 public:
  virtual ~ScalableGradients() = default;
  /// Waits for the gradients and multiplies them. Returns whether every element is finite, the same
  /// on all ranks.
  virtual bool scale_gradients(double factor) = 0;
  /// Steps with the scaled gradients.
  virtual void step_scaled() = 0;
  /// Or leaves the step out.
  virtual void skip_scaled() = 0;
};

/// Multiplies the gradients of one rank's optimizer; returns whether every element is finite.
bool scale_own_gradients(torch::optim::Optimizer& optimizer, double factor);

}  // namespace hvd
