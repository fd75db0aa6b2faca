// A network as the estimator sees it: tensors in, tensors out.
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

/// Any module, with a tensor for each feature column: `forward(t1, t2, …)`, up to eight. It returns
/// a tensor, a pair or a tuple of up to four, or a vector of them. The module is shared, not
/// copied.
class Trainable {
 public:
  using Tensors = std::vector<torch::Tensor>;
  using Forward = std::function<Tensors(const Tensors&)>;

  /// Nothing.
  Trainable() = default;
  Trainable(torch::nn::AnyModule module);       // NOLINT: implicit
  Trainable(const torch::nn::Sequential& net);  // NOLINT: implicit
  /// A holder, as TORCH_MODULE makes it.
  template <class Contained>
  Trainable(const torch::nn::ModuleHolder<Contained>& holder)  // NOLINT: implicit
      : Trainable(torch::nn::AnyModule(holder)) {}
  /// A module that is called another way: a TorchScript one, say.
  Trainable(std::shared_ptr<torch::nn::Module> module, Forward forward);

  [[nodiscard]] bool empty() const noexcept { return module_ == nullptr; }
  /// Throws Errc::invalid_argument when there is none; so does `forward`.
  [[nodiscard]] torch::nn::Module& module() const;
  /// Throws Errc::invalid_argument for another number of inputs than `forward` takes, and for
  /// something that it returns and that is no tensor; and what `forward` throws.
  [[nodiscard]] Tensors forward(const Tensors& inputs) const;

 private:
  std::shared_ptr<torch::nn::Module> module_;
  Forward forward_;
};

}  // namespace hvd
