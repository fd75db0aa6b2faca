// Declares a list of tensors with names, which has the same order on every rank.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/ordered_dict.h>
#include <torch/types.h>

namespace hvd {

/// Points to a module: a holder such as `torch::nn::Linear` or what TORCH_MODULE declares, a
/// `std::shared_ptr`, or a plain pointer. It must not be null.
template <class Pointer>
concept ModulePointer = requires(const Pointer& module) {
  { *module } -> std::convertible_to<const torch::nn::Module&>;
};

/// Holds what `module->named_parameters()` returns, or any list of pairs. The tensors are shared,
/// not copied.
class NamedTensors {
 public:
  using Item = std::pair<std::string, torch::Tensor>;

  NamedTensors() = default;
  NamedTensors(const torch::OrderedDict<std::string, torch::Tensor>& tensors);  // NOLINT: implicit
  NamedTensors(std::vector<Item> tensors) noexcept;                             // NOLINT: implicit
  NamedTensors(std::initializer_list<Item> tensors) : items_(tensors) {}
  /// Lists the parameters of the module and all its submodules, without the buffers.
  NamedTensors(const torch::nn::Module& module);  // NOLINT: implicit
  template <ModulePointer Pointer>
  NamedTensors(const Pointer& module)  // NOLINT: implicit
      : NamedTensors(static_cast<const torch::nn::Module&>(*module)) {}
  /// Lists those of a TorchScript module likewise.
  NamedTensors(const torch::jit::Module& module);  // NOLINT: implicit

  /// Returns the parameters, then the buffers, of the module and all its submodules.
  [[nodiscard]] static NamedTensors of(const torch::nn::Module& module);
  [[nodiscard]] static NamedTensors of(const torch::jit::Module& module);

  /// Joins lists of tensors whose names may be the same, such as those of two models with one
  /// optimizer: `joined({{"actor", *actor}, {"critic", *critic}})` has names like
  /// `actor.fc.weight`.
  [[nodiscard]] static NamedTensors joined(
      std::initializer_list<std::pair<std::string, NamedTensors>> lists);

  /// Returns the list without undefined tensors, and with each tensor once, under its first name. A
  /// parameter that two modules share has two names.
  [[nodiscard]] NamedTensors distinct() const;
  [[nodiscard]] std::vector<torch::Tensor> tensors() const;

  [[nodiscard]] const std::vector<Item>& items() const& noexcept { return items_; }
  /// Returns the list of a temporary by value, so that a range-based for loop may use it.
  [[nodiscard]] std::vector<Item> items() && noexcept { return std::move(items_); }
  [[nodiscard]] std::size_t size() const noexcept { return items_.size(); }

 private:
  std::vector<Item> items_;
};

namespace detail {

/// Lists the tensors that a module has at the time of the call, because it may get, lose or replace
/// some. A module of C++ must outlive this object, which shares a TorchScript module.
struct ModuleTensors {
  ModuleTensors(const torch::nn::Module& module);   // NOLINT: implicit
  ModuleTensors(const torch::jit::Module& module);  // NOLINT: implicit

  std::function<NamedTensors()> parameters;
  std::function<NamedTensors()> buffers;
};

}  // namespace detail
}  // namespace hvd
