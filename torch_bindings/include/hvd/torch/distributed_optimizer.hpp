// Declares an optimizer that steps with the gradients of all ranks.
#pragma once

#include <concepts>
#include <utility>
#include <vector>

#include <hvd/torch/gradient_reducer.hpp>
#include <hvd/torch/wrapped_optimizer.hpp>

namespace hvd {

/// There are two forms, and both are a `torch::optim::Optimizer`: schedulers, `torch::save` and
/// everything that takes an `Optimizer&` work, and `step()` through that reference is the
/// distributed one.
///
/// - `hvd::DistributedOptimizer<torch::optim::SGD> opt(*model, options)` is a `torch::optim::SGD`.
/// - `hvd::DistributedOptimizer opt(sgd, *model)` wraps an optimizer, which must outlive it. From
///   then on the program calls `step()` on the wrapper. The two share parameters and options, so
///   everything else may be called on either of them (hvd/torch/wrapped_optimizer.hpp).
///
/// `parameters` is a list of named tensors or a module, which stands for its parameters.
///
/// The constructor and `step()` are collective, and so is a backward pass that gives any of the
/// parameters a gradient: it waits until the gradients are reduced over all ranks. A parameter
/// without a gradient takes part with zeros, so ranks may use different parameters. A rank whose
/// pass used no parameter takes part in `step()`. `backward()` throws the error of a collective, or
/// Errc::invalid_argument for misuse, and `step()` throws it again.
///
/// In an elastic job (hvd/elastic.hpp) it is constructed before `elastic_run` and used in its
/// function, in all generations. There the constructor is not collective and broadcasts nothing,
/// which the state does; outside of the function, `step()` throws Errc::not_initialized, and
/// gradients stay on this rank. Compressors forget what they keep when a generation ends.
template <class Base = detail::WrappedOptimizer>
class DistributedOptimizer final : public Base,
                                   public ScalableGradients,
                                   public detail::CountsSteps {
 public:
  using LossClosure = torch::optim::Optimizer::LossClosure;

  /// Wraps an optimizer. `parameters` holds a name for each of its parameters.
  DistributedOptimizer(torch::optim::Optimizer& optimizer, const NamedTensors& parameters,
                       const DistributedOptimizerOptions& options = {}) requires
      std::same_as<Base, detail::WrappedOptimizer>
      : Base(optimizer), reducer_(*this, parameters, options, base_step()) {}

  /// Makes one parameter group. A parameter with two names, as of shared layers, is used once.
  template <class BaseOptions>
  requires std::constructible_from<Base, std::vector<torch::Tensor>, BaseOptions>
  DistributedOptimizer(const NamedTensors& parameters, BaseOptions&& base_options,
                       const DistributedOptimizerOptions& options = {})
      : Base(parameters.distinct().tensors(), std::forward<BaseOptions>(base_options)),
        reducer_(*this, parameters, options, base_step()) {}

  /// Makes one parameter group with the default options of `Base`, which SGD does not have.
  explicit DistributedOptimizer(const NamedTensors& parameters,
                                const DistributedOptimizerOptions& options = {}) requires
      std::constructible_from<Base, std::vector<torch::Tensor>>
      : Base(parameters.distinct().tensors()), reducer_(*this, parameters, options, base_step()) {}

  /// Takes several parameter groups; `names` holds a name for each of their parameters.
  template <class BaseOptions>
  DistributedOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                       const NamedTensors& names, BaseOptions&& base_options,
                       const DistributedOptimizerOptions& options = {})
      : Base(groups, std::forward<BaseOptions>(base_options)),
        reducer_(*this, names, options, base_step()) {}

  torch::Tensor step(LossClosure closure = nullptr) override {
    return reducer_.step(std::move(closure));
  }

  /// Throws Errc::invalid_argument while gradients are being reduced. A call through an
  /// `Optimizer&` reaches the function of the base; then `step()` reports the misuse.
  void zero_grad(bool set_to_none = true) {
    reducer_.require_idle("zero_grad()");
    reducer_.forget_failed_step();
    Base::zero_grad(set_to_none);
  }

  /// Gives the gradients of the next reduction the weight of this rank, such as the number of rows
  /// of its batch. Called once, before the backward pass that is sent. It sends one number, and the
  /// pass waits for the sum of all weights when its first gradient is there. A rank with weight 0
  /// contributes zeros, whatever its gradients are. Collective. Needs the option `weighted`; throws
  /// Errc::invalid_argument without it, for a weight that is negative or not finite, and for a
  /// second call before the reduction.
  void set_weight(double weight) { reducer_.set_weight(weight); }
  /// Waits until the gradients are reduced over all ranks, unless the backward pass has waited
  /// already. Collective.
  void synchronize() { reducer_.synchronize(); }
  /// While the result lives, `step()` does not synchronize, because the program has done so.
  [[nodiscard]] ScopedPause skip_synchronize() { return reducer_.skip_synchronize(); }
  /// While the result lives, backward passes add to the gradients of this rank and send nothing.
  /// The first pass after it sends the sum.
  [[nodiscard]] ScopedPause no_sync() { return reducer_.no_sync(); }
  /// Returns how many gradients were copied. Must not be called during a backward pass.
  [[nodiscard]] const GradientCounters& gradient_counters() const {
    return reducer_.gradient_counters();
  }

  bool scale_gradients(double factor) override {
    reducer_.require_step_after_backward("GradScaler");
    reducer_.synchronize();
    return detail::scale_own_gradients(*this, factor);
  }
  void step_scaled() override {
    const ScopedPause reduced = skip_synchronize();
    step();
  }
  void skip_scaled() override { reducer_.skip_step(); }
  [[nodiscard]] detail::StepCount& step_count() noexcept override { return reducer_.step_count(); }
  [[nodiscard]] bool steps_at_once() const noexcept override { return reducer_.steps_at_once(); }

 private:
  auto base_step() {
    return [this](LossClosure closure) { return Base::step(std::move(closure)); };
  }

  detail::GradientReducer reducer_;
};

/// Lets the compiler deduce, from `DistributedOptimizer(optimizer, …)`, the form that wraps an
/// optimizer.
DistributedOptimizer(torch::optim::Optimizer&, const NamedTensors&,
                     const DistributedOptimizerOptions& = {})
    ->DistributedOptimizer<detail::WrappedOptimizer>;

}  // namespace hvd
