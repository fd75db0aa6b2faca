// Declares the common parts of `DistributedOptimizer` and `ShardedOptimizer`.
#pragma once

#include <cstdint>

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

namespace hvd {

/// Turns a feature of an optimizer off while it lives, such as the reduction of gradients. It must
/// not outlive the optimizer that returned it.
class [[nodiscard]] ScopedPause {
 public:
  explicit ScopedPause(int& depth) noexcept : depth_(depth) { ++depth_; }
  ~ScopedPause() { --depth_; }
  ScopedPause(const ScopedPause&) = delete;
  ScopedPause& operator=(const ScopedPause&) = delete;

 private:
  int& depth_;
};

/// The interface through which `GradScaler` uses an optimizer whose gradients are reduced. The
/// distributed optimizers derive from it, so that the scaler, which gets an `Optimizer&`, can find
/// out whether it is one of them. The three functions are collective, and each is called at most
/// once per step.
class ScalableGradients {
 public:
  virtual ~ScalableGradients() = default;
  /// Waits until the gradients are reduced and multiplies them by `factor`. Returns, equally on all
  /// ranks, whether every element of the gradients is finite.
  virtual bool scale_gradients(double factor) = 0;
  /// Steps with the scaled gradients.
  virtual void step_scaled() = 0;
  /// Ends the step without stepping.
  virtual void skip_scaled() = 0;
};

namespace detail {

/// Tells how far an optimizer has come, also over several generations of an elastic job.
struct StepCount {
  std::int64_t completed = 0;  ///< the calls of `step()` that have changed the parameters
  /// A step that communicates after it has begun to change parameters has begun and not ended. When
  /// it fails, the parameters are neither those before the step nor those after it.
  bool underway = false;
};

/// The interface through which `ElasticState` finds an optimizer that counts its steps. Others may
/// step at any time.
class CountsSteps {
 public:
  virtual ~CountsSteps() = default;
  [[nodiscard]] virtual StepCount& step_count() noexcept = 0;
  /// Returns whether a step changes parameters only after all its communication.
  [[nodiscard]] virtual bool steps_at_once() const noexcept = 0;
};

class ShardMirror;

/// The interface through which `ElasticState` finds an optimizer whose state is divided among the
/// ranks.
class DividesState {
 public:
  virtual ~DividesState() = default;
  /// Writes the whole state into the archives of all ranks, so that each of them can be loaded by
  /// any number of ranks. Collective.
  virtual void save_on_all_ranks(torch::serialize::OutputArchive& archive) const = 0;
  /// Returns what keeps the state when one rank is lost, or null when a part of it is lost then.
  [[nodiscard]] virtual ShardMirror* mirror() const noexcept = 0;
};

/// Multiplies the gradients that the optimizer's parameters have on this rank. Returns whether
/// every element is finite. Not collective.
bool scale_own_gradients(torch::optim::Optimizer& optimizer, double factor);

}  // namespace detail
}  // namespace hvd
