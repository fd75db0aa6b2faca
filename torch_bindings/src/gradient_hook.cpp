#include <algorithm>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include "gradient_slot.hpp"

namespace hvd {

namespace {

class Notify final : public torch::autograd::FunctionPostHook {
 public:
  Notify(GradientListener& listener, std::size_t index) : listener_(listener), index_(index) {}

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
  key_ = accumulator_->add_post_hook(std::make_unique<Notify>(listener, index));
}

bool GradientHook::is_on(const torch::Tensor& parameter) {
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameter);
  if (!accumulator) return false;
  const auto& hooks = accumulator->post_hooks();
  return std::any_of(hooks.begin(), hooks.end(), [](const auto& hook) {
    return dynamic_cast<const Notify*>(hook.get()) != nullptr;
  });
}

void GradientHook::remove() noexcept {
  if (accumulator_) accumulator_->del_post_hook(key_);
  accumulator_ = {};
}

}  // namespace hvd
