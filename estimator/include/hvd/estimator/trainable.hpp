// Declares a network for the estimator, as a function from tensors to tensors.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace hvd {

/// Holds any module whose `forward(t1, t2, …)` takes one tensor for each input, up to eight, and
/// returns a tensor, a pair or a tuple of up to four tensors, or a vector of tensors. The module is
/// shared, not copied.
class Trainable {
 public:
  using Tensors = std::vector<torch::Tensor>;
  using Forward = std::function<Tensors(const Tensors&)>;

  /// Holds no module.
  Trainable() = default;
  Trainable(torch::nn::AnyModule module);       // NOLINT: implicit
  Trainable(const torch::nn::Sequential& net);  // NOLINT: implicit
  /// Takes a holder that TORCH_MODULE has defined.
  template <class Contained>
  Trainable(const torch::nn::ModuleHolder<Contained>& holder)  // NOLINT: implicit
      : Trainable(torch::nn::AnyModule(holder)) {}
  /// Takes a module with a `forward` of another kind, such as a TorchScript module.
  Trainable(std::shared_ptr<torch::nn::Module> module, Forward forward);

  [[nodiscard]] bool empty() const noexcept { return module_ == nullptr; }
  /// Throws Errc::invalid_argument when there is no module; so do the functions below.
  [[nodiscard]] torch::nn::Module& module() const;
  /// Returns the device of the module's first parameter, or the CPU if it has none.
  [[nodiscard]] torch::Device device() const;
  /// Moves the inputs to `device()`. Throws Errc::invalid_argument when `forward` takes another
  /// number of inputs or returns anything but tensors, and what `forward` throws.
  [[nodiscard]] Tensors forward(const Tensors& inputs) const;

 private:
  std::shared_ptr<torch::nn::Module> module_;
  Forward forward_;
};

}  // namespace hvd
