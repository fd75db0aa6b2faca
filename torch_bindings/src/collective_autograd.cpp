#include "collective_autograd.hpp"

#include <algorithm>

#include <torch/csrc/autograd/custom_function.h>

namespace hvd {

namespace {

/// LibTorch's functions save values of its own kinds only; this carries ours through one of them.
struct SavedBackward final : torch::CustomClassHolder {
  explicit SavedBackward(Backward function) : call(std::move(function)) {}
  Backward call;
};

struct CollectiveFunction : torch::autograd::Function<CollectiveFunction> {
  static Tensors forward(torch::autograd::AutogradContext* saved, at::TensorList /*inputs*/,
                         const Forward& forward, const c10::IValue& backward) {
    saved->saved_data["backward"] = backward;
    return forward();
  }
  static Tensors backward(torch::autograd::AutogradContext* saved, const Tensors& gradients) {
    const auto backward = c10::static_intrusive_pointer_cast<SavedBackward>(
        saved->saved_data["backward"].toCapsule());
    Tensors all = backward->call(gradients);
    all.resize(all.size() + 2);  // none for what is no tensor
    return all;
  }
};

}  // namespace

bool is_recorded(const Tensors& inputs) {
  return torch::GradMode::is_enabled() &&
         std::any_of(inputs.begin(), inputs.end(), [](const torch::Tensor& input) {
           return input.defined() && input.requires_grad();
         });
}

Tensors record(const Tensors& inputs, const Forward& forward, Backward backward) {
  return CollectiveFunction::apply(
      at::TensorList(inputs), forward,
      c10::IValue::make_capsule(c10::make_intrusive<SavedBackward>(std::move(backward))));
}

}  // namespace hvd
