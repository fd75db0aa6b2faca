// Declares the base of a `DistributedOptimizer` that wraps an optimizer of the program.
#pragma once

#include <vector>

#include <torch/optim/optimizer.h>

namespace hvd::detail {

/// Steps, saves and loads another optimizer, which must outlive it. Its parameter groups have the
/// tensors and the options objects of that optimizer's groups. So a scheduler, or `zero_grad()`
/// through an `Optimizer&`, has the same effect on either of the two. Only the state of the
/// parameters cannot be shared: `state()` through an `Optimizer&` is empty. The program must not
/// add groups or parameters to either optimizer, or replace options objects (`set_options`).
class WrappedOptimizer : public torch::optim::Optimizer {
 public:
  explicit WrappedOptimizer(torch::optim::Optimizer& optimizer);
  ~WrappedOptimizer() override;
  WrappedOptimizer(const WrappedOptimizer&) = delete;
  WrappedOptimizer& operator=(const WrappedOptimizer&) = delete;

  /// Throws Errc::invalid_argument when groups or parameters were added, or options replaced.
  torch::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
  /// Returns the state that the wrapped optimizer has of each parameter.
  [[nodiscard]] auto& state() noexcept { return optimizer_.state(); }
  [[nodiscard]] const auto& state() const noexcept { return wrapped().state(); }

  [[nodiscard]] torch::optim::Optimizer& wrapped() noexcept { return optimizer_; }
  [[nodiscard]] const torch::optim::Optimizer& wrapped() const noexcept { return optimizer_; }

 private:
  [[nodiscard]] bool groups_are_shared() const;

  torch::optim::Optimizer& optimizer_;
  /// The options objects that the wrapped optimizer owns: one for each group, then the defaults.
  std::vector<torch::optim::OptimizerOptions*> shared_;
};

/// Returns the optimizer that a `WrappedOptimizer` steps, and any other optimizer as it is.
[[nodiscard]] torch::optim::Optimizer& unwrapped(torch::optim::Optimizer& optimizer) noexcept;
[[nodiscard]] const torch::optim::Optimizer& unwrapped(
    const torch::optim::Optimizer& optimizer) noexcept;

}  // namespace hvd::detail
