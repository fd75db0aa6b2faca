#include "gradients/gradient_hook.hpp"

#include <algorithm>

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

}  // namespace

void GradientHook::attach(const torch::Tensor& parameter, GradientListener& listener,
                          std::size_t index) {
  if (!parameter.requires_grad()) return;
  auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
  if (accumulator == accumulator_) return;
  remove();
  accumulator_ = std::move(accumulator);
  auto before = std::make_unique<NotifyBefore>(listener, index);
  before_ = before.get();
  accumulator_->add_pre_hook(std::move(before));
  key_ = accumulator_->add_post_hook(std::make_unique<NotifyAfter>(listener, index));
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
  if (!accumulator_) return;
  auto& before = accumulator_->pre_hooks();
  before.erase(std::remove_if(before.begin(), before.end(),
                              [this](const auto& hook) { return hook.get() == before_; }),
               before.end());
  accumulator_->del_post_hook(key_);
  accumulator_ = {};
}

}  // namespace hvd::detail
