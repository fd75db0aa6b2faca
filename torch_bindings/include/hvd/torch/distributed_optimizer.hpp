// Declares an optimizer that steps with the gradients of all ranks.
#pragma once

#include <utility>
#include <vector>

#include <hvd/torch/gradient_reducer.hpp>
#include <hvd/torch/optimizer_state.hpp>
#include <hvd/torch/verify.hpp>

namespace hvd {

/// `hvd::DistributedOptimizer<torch::optim::SGD> opt(model->named_parameters(), options)` is a
/// `torch::optim::SGD`: schedulers, `torch::save` and everything that takes an `Optimizer&` work,
/// and `step()` through that reference is the distributed one.
///
/// The constructor and `step()` are collective, and so is a backward pass that gives any of the
/// parameters a gradient: it waits until the gradients are reduced over all ranks. A parameter
/// without a gradient takes part with zeros, so ranks may use different parameters. A rank whose
/// pass used no parameter takes part in `step()`. `backward()` throws the error of a collective, or
/// Errc::invalid_argument for misuse, and `step()` throws it again.
template <class Base = void>
class DistributedOptimizer final : public Base, public ScalableGradients {
 public:
  using LossClosure = torch::optim::Optimizer::LossClosure;

  /// Makes one parameter group. A parameter with two names, as of shared layers, is used once.
  template <class BaseOptions>
  DistributedOptimizer(const NamedTensors& parameters, BaseOptions&& base_options,
                       const DistributedOptimizerOptions& options = {})
      : Base(parameters.distinct().tensors(), std::forward<BaseOptions>(base_options)),
        reducer_(*this, parameters, options) {}

  /// Takes several parameter groups; `names` holds a name for each of their parameters.
  template <class BaseOptions>
  DistributedOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                       const NamedTensors& names, BaseOptions&& base_options,
                       const DistributedOptimizerOptions& options = {})
      : Base(groups, std::forward<BaseOptions>(base_options)), reducer_(*this, names, options) {}

  torch::Tensor step(LossClosure closure = nullptr) override {
    return reducer_.step([this](LossClosure inner) { return Base::step(std::move(inner)); },
                         std::move(closure));
  }

  /// Throws Errc::invalid_argument while gradients are being reduced. A call through an
  /// `Optimizer&` reaches the function of the base; then `step()` reports the misuse.
  void zero_grad(bool set_to_none = true) {
    reducer_.require_idle("zero_grad()");
    Base::zero_grad(set_to_none);
  }

  /// Waits until the gradients are reduced over all ranks, unless the backward pass has waited
  /// already. Collective.
  void synchronize() { reducer_.synchronize(); }
  /// While the result lives, `step()` does not synchronize, because the program has done so.
  [[nodiscard]] ScopedPause skip_synchronize() noexcept { return reducer_.skip_synchronize(); }
  /// While the result lives, backward passes add to the gradients of this rank and send nothing.
  /// The first pass after it sends the sum.
  [[nodiscard]] ScopedPause no_sync() noexcept { return reducer_.no_sync(); }
  /// Returns how many gradients were copied. Must not be called during a backward pass.
  [[nodiscard]] const GradientCounters& gradient_counters() const noexcept {
    return reducer_.gradient_counters();
  }

  bool scale_gradients(double factor) override {
    synchronize();
    return detail::scale_own_gradients(*this, factor);
  }
  void step_scaled() override {
    const ScopedPause reduced = skip_synchronize();
    step();
  }
  void skip_scaled() override { reducer_.skip_step(); }

 private:
  detail::GradientReducer reducer_;
};

/// `hvd::DistributedOptimizer opt(sgd, model->named_parameters())` wraps an optimizer, which must
/// outlive it. From then on the program calls `step()` on the wrapper; schedulers and `torch::save`
/// take the optimizer itself.
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
  /// Returns how many gradients were copied. Must not be called during a backward pass.
  [[nodiscard]] const GradientCounters& gradient_counters() const noexcept {
    return reducer_.gradient_counters();
  }

  bool scale_gradients(double factor) override {
    synchronize();
    return detail::scale_own_gradients(optimizer_, factor);
  }
  void step_scaled() override {
    const ScopedPause reduced = skip_synchronize();
    step();
  }
  void skip_scaled() override { reducer_.skip_step(); }

  [[nodiscard]] torch::optim::Optimizer& optimizer() noexcept { return optimizer_; }

 private:
  torch::optim::Optimizer& optimizer_;
  detail::GradientReducer reducer_;
};

/// Lets the compiler deduce, from `DistributedOptimizer(optimizer, …)`, the form that wraps an
/// optimizer.
DistributedOptimizer(torch::optim::Optimizer&, const NamedTensors&,
                     const DistributedOptimizerOptions& = {})
    ->DistributedOptimizer<void>;

/// Broadcasts the state of the wrapped optimizer.
inline void broadcast_optimizer_state(DistributedOptimizer<void>& optimizer, int root = 0,
                                      Context& context = hvd::context()) {
  broadcast_optimizer_state(optimizer.optimizer(), root, context);
}

/// Compares the wrapped optimizer.
[[nodiscard]] inline Verification verify(DistributedOptimizer<void>& optimizer,
                                         Context& context = hvd::context()) {
  return verify(optimizer.optimizer(), context);
}

}  // namespace hvd
