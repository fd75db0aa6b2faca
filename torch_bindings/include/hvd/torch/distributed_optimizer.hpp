// An optimizer that steps with the gradients of all ranks.
#pragma once

#include <utility>
#include <vector>

#include <hvd/torch/gradient_reducer.hpp>
#include <hvd/torch/optimizer_state.hpp>
#include <hvd/torch/scalable_gradients.hpp>
#include <hvd/torch/verify.hpp>

namespace hvd {

/// `hvd::DistributedOptimizer<torch::optim::SGD> opt(model->named_parameters(), options)` is a
/// `torch::optim::SGD`: schedulers, `torch::save` and everything that takes an `Optimizer&` work,
/// and `step()` through that reference is the distributed one.
///
/// Construction and `step()` are collective. A parameter that autograd gave no gradient takes part
/// with zeros, so ranks may differ in what they use. `step()` throws what went wrong since the last
/// one: the error of a collective, or misuse (Errc::invalid_argument).
template <class Base = void>
class DistributedOptimizer final : public Base, public ScalableGradients {
 public:
  using LossClosure = torch::optim::Optimizer::LossClosure;

  /// One parameter group. A parameter with two names, as of shared layers, is taken once.
  template <class BaseOptions>
  DistributedOptimizer(const NamedTensors& parameters, BaseOptions&& base_options,
                       const DistributedOptimizerOptions& options = {})
      : Base(parameters.distinct().tensors(), std::forward<BaseOptions>(base_options)),
        reducer_(*this, parameters, options) {}

  /// Several parameter groups; `names` holds a name for each of their parameters.
  template <class BaseOptions>
  DistributedOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                       const NamedTensors& names, BaseOptions&& base_options,
                       const DistributedOptimizerOptions& options = {})
      : Base(groups, std::forward<BaseOptions>(base_options)), reducer_(*this, names, options) {}

  torch::Tensor step(LossClosure closure = nullptr) override {
    return reducer_.step([this](LossClosure inner) { return Base::step(std::move(inner)); },
                         std::move(closure));
  }

  /// Throws Errc::invalid_argument at once between `backward()` and `step()`; through an
  /// `Optimizer&`, which calls the base's, that is found at `step()`.
  void zero_grad(bool set_to_none = true) {
    reducer_.require_idle("zero_grad()");
    Base::zero_grad(set_to_none);
  }

  /// Waits for the gradients now: between this and a `step()` under `skip_synchronize()` they may
  /// be clipped or changed.
  void synchronize() { reducer_.synchronize(); }
  [[nodiscard]] ScopedPause skip_synchronize() noexcept { return reducer_.skip_synchronize(); }
  /// Backward passes while it lives add to the gradients of this rank and send nothing; the first
  /// one after it sends the sum.
  [[nodiscard]] ScopedPause no_sync() noexcept { return reducer_.no_sync(); }
  /// What became of the gradients' memory. Not during a backward pass.
  [[nodiscard]] const GradientCounters& gradient_counters() const noexcept {
    return reducer_.gradient_counters();
  }

  bool scale_gradients(double factor) override {
    synchronize();
    return scale_own_gradients(*this, factor);
  }
  void step_scaled() override {
    const ScopedPause reduced = skip_synchronize();
    step();
  }
  void skip_scaled() override {}

 private:
  GradientReducer reducer_;
};

/// `hvd::DistributedOptimizer opt(sgd, model->named_parameters())` wraps an optimizer, which
/// outlives it. From then on `step()` is called on the wrapper; schedulers and `torch::save` take
/// the optimizer itself.
template <>
class DistributedOptimizer<void> final : public ScalableGradients {
 public:
  using LossClosure = torch::optim::Optimizer::LossClosure;

  DistributedOptimizer(torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                       const DistributedOptimizerOptions& options = {})
      : optimizer_(optimizer), reducer_(optimizer, parameters, options) {}

  torch::Tensor step(LossClosure closure = nullptr) {
    return reducer_.step([this](LossClosure inner) { return optimizer_.step(std::move(inner)); },
                         std::move(closure));
  }
  void zero_grad(bool set_to_none = true) {
    reducer_.require_idle("zero_grad()");
    optimizer_.zero_grad(set_to_none);
  }
  void synchronize() { reducer_.synchronize(); }
  [[nodiscard]] ScopedPause skip_synchronize() noexcept { return reducer_.skip_synchronize(); }
  [[nodiscard]] ScopedPause no_sync() noexcept { return reducer_.no_sync(); }
  /// What became of the gradients' memory. Not during a backward pass.
  [[nodiscard]] const GradientCounters& gradient_counters() const noexcept {
    return reducer_.gradient_counters();
  }

  bool scale_gradients(double factor) override {
    synchronize();
    return scale_own_gradients(optimizer_, factor);
  }
  void step_scaled() override {
    const ScopedPause reduced = skip_synchronize();
    step();
  }
  void skip_scaled() override {}

  [[nodiscard]] torch::optim::Optimizer& optimizer() noexcept { return optimizer_; }

 private:
  torch::optim::Optimizer& optimizer_;
  GradientReducer reducer_;
};

/// `DistributedOptimizer(optimizer, …)` wraps it.
DistributedOptimizer(torch::optim::Optimizer&, const NamedTensors&,
                     const DistributedOptimizerOptions& = {})
    ->DistributedOptimizer<void>;

/// That of the wrapped optimizer.
inline void broadcast_optimizer_state(DistributedOptimizer<void>& optimizer, int root = 0) {
  broadcast_optimizer_state(optimizer.optimizer(), root);
}
inline void broadcast_optimizer_state(Context& context, DistributedOptimizer<void>& optimizer,
                                      int root = 0) {
  broadcast_optimizer_state(context, optimizer.optimizer(), root);
}

/// Of the wrapped optimizer.
[[nodiscard]] inline Verification verify(DistributedOptimizer<void>& optimizer) {
  return verify(optimizer.optimizer());
}
[[nodiscard]] inline Verification verify(Context& context, DistributedOptimizer<void>& optimizer) {
  return verify(context, optimizer.optimizer());
}

}  // namespace hvd
