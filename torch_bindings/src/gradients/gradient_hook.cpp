#include "gradients/gradient_hook.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

namespace hvd::detail {

namespace {

class NotifyBefore final : public torch::autograd::FunctionPreHook {
 public:
  NotifyBefore(GradientListener& listener, std::size_t index)
      : listener_(listener), index_(index) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    listener_.before_gradient(index_);
    return gradients;
  }

 private:
  GradientListener& listener_;
  std::size_t index_;
};

class NotifyAfter final : public torch::autograd::FunctionPostHook {
 public:
  NotifyAfter(GradientListener& listener, std::size_t index) : listener_(listener), index_(index) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    listener_.on_gradient(index_, inputs.empty() ? torch::Tensor() : inputs.front());
    return outputs;
  }

 private:
  GradientListener& listener_;
  std::size_t index_;
};

/// Is called before the other hooks, because it belongs to the parameter, and adds them to an
/// accumulator that is new.
class Reattach final : public torch::autograd::FunctionPreHook {
 public:
  Reattach(GradientHook& hook, const torch::Tensor& parameter, GradientListener& listener,
           std::size_t index)
      : hook_(hook), parameter_(parameter), listener_(listener), index_(index) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    hook_.attach(parameter_, listener_, index_);
    return gradients;
  }
  [[nodiscard]] bool is_of(const GradientHook& hook) const noexcept { return &hook_ == &hook; }

 private:
  GradientHook& hook_;
  const torch::Tensor& parameter_;  ///< the hook's, since a parameter must not own itself
  GradientListener& listener_;
  std::size_t index_;
};

using PreHooks = std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>;

/// Lets a frozen parameter require a gradient while this lives, if it can, because LibTorch makes
/// accumulators and adds hooks only then.
class Thawed {
 public:
  explicit Thawed(const torch::Tensor& parameter)
      : parameter_(parameter),
        was_frozen_(!parameter.requires_grad() && !parameter.is_inference() &&
                    torch::autograd::isDifferentiableType(parameter.scalar_type())) {
    if (was_frozen_) parameter_.set_requires_grad(true);
  }
  ~Thawed() {
    if (was_frozen_) parameter_.set_requires_grad(false);
  }
  Thawed(const Thawed&) = delete;
  Thawed& operator=(const Thawed&) = delete;

 private:
  const torch::Tensor& parameter_;
  const bool was_frozen_;
};

/// When the program adds its first hook to a parameter, LibTorch destroys the hooks that are there.
/// This adds one and removes it, so that the program's is not the first.
void keep_hooks(const torch::Tensor& parameter) {
  PreHooks& hooks = torch::autograd::impl::hooks(parameter);
  const bool are_ours = std::all_of(hooks.begin(), hooks.end(), [](const auto& hook) {
    return dynamic_cast<const Reattach*>(hook.get()) != nullptr;
  });
  if (!are_ours) return;
  PreHooks ours = std::exchange(hooks, {});
  parameter.remove_hook(parameter.register_hook([](const torch::Tensor&) {}));
  std::move(ours.begin(), ours.end(), std::back_inserter(hooks));
}

}  // namespace

void GradientHook::attach(const torch::Tensor& parameter, GradientListener& listener,
                          std::size_t index) {
  if (accumulator_ && !parameter.requires_grad()) return;
  const Thawed thawed(parameter);
  auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
  if (!accumulator || accumulator == accumulator_) return;
  remove_from_accumulator();
  accumulator_ = std::move(accumulator);
  auto before = std::make_unique<NotifyBefore>(listener, index);
  before_ = before.get();
  accumulator_->add_pre_hook(std::move(before));
  key_ = accumulator_->add_post_hook(std::make_unique<NotifyAfter>(listener, index));
  if (parameter_.defined()) return;
  parameter_ = parameter;
  keep_hooks(parameter_);
  // LibTorch's add_hook refuses a parameter with a hook of the program. The parameter has a list of
  // hooks, because it has an accumulator.
  torch::autograd::impl::hooks(parameter_)
      .push_back(std::make_unique<Reattach>(*this, parameter_, listener, index));
}

bool GradientHook::is_on(const torch::Tensor& parameter) {
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameter);
  if (!accumulator) return false;
  const auto& hooks = accumulator->post_hooks();
  return std::any_of(hooks.begin(), hooks.end(), [](const auto& hook) {
    return dynamic_cast<const NotifyAfter*>(hook.get()) != nullptr;
  });
}

void GradientHook::remove() noexcept {
  remove_from_accumulator();
  if (!parameter_.defined()) return;
  // LibTorch destroys this hook when the program adds the first one of its own to the parameter,
  // and the program's may then have its address.
  PreHooks& hooks = torch::autograd::impl::hooks(parameter_);
  std::erase_if(hooks, [this](const auto& hook) {
    const auto* const own = dynamic_cast<const Reattach*>(hook.get());
    return own != nullptr && own->is_of(*this);
  });
  parameter_.reset();
}

void GradientHook::remove_from_accumulator() noexcept {
  if (!accumulator_) return;
  PreHooks& hooks = accumulator_->pre_hooks();
  std::erase_if(hooks, [this](const auto& hook) { return hook.get() == before_; });
  accumulator_->del_post_hook(key_);
  accumulator_ = {};
}

}  // namespace hvd::detail
