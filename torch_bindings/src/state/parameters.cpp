// Implements lists of named tensors, and the broadcast that makes them equal on all ranks.
#include <unordered_set>

#include <hvd/hvd.hpp>
#include <hvd/torch/named_tensors.hpp>
#include <hvd/torch/parameters.hpp>

#include "state/agreement.hpp"

namespace hvd {

namespace {

/// Returns a list of LibTorch's, such as `named_buffers()` of a TorchScript module.
std::vector<NamedTensors::Item> items_of(const auto& list) {
  std::vector<NamedTensors::Item> items;
  for (const auto& entry : list) items.emplace_back(entry.name, entry.value);
  return items;
}

}  // namespace

NamedTensors::NamedTensors(const torch::OrderedDict<std::string, torch::Tensor>& tensors)
    : items_(tensors.pairs()) {}

NamedTensors::NamedTensors(std::vector<Item> tensors) noexcept : items_(std::move(tensors)) {}

NamedTensors::NamedTensors(const torch::nn::Module& module)
    : NamedTensors(module.named_parameters()) {}

NamedTensors::NamedTensors(const torch::jit::Module& module)
    : items_(items_of(module.named_parameters())) {}

NamedTensors NamedTensors::joined(
    std::initializer_list<std::pair<std::string, NamedTensors>> lists) {
  std::vector<Item> items;
  for (const auto& [prefix, list] : lists) {
    for (const auto& [name, tensor] : list.items_) items.emplace_back(prefix + "." + name, tensor);
  }
  return items;
}

NamedTensors NamedTensors::of(const torch::nn::Module& module) {
  std::vector<Item> items = module.named_parameters().pairs();
  for (auto& buffer : module.named_buffers().pairs()) items.push_back(std::move(buffer));
  return items;
}

NamedTensors NamedTensors::of(const torch::jit::Module& module) {
  std::vector<Item> items = items_of(module.named_parameters());
  for (Item& buffer : items_of(module.named_buffers())) items.push_back(std::move(buffer));
  return items;
}

detail::ModuleTensors::ModuleTensors(const torch::nn::Module& module)
    : parameters([&module] { return NamedTensors(module); }),
      buffers([&module] { return NamedTensors(module.named_buffers()); }) {}

detail::ModuleTensors::ModuleTensors(const torch::jit::Module& module)
    : parameters([module] { return NamedTensors(module); }),
      buffers([module] { return NamedTensors(items_of(module.named_buffers())); }) {}

NamedTensors NamedTensors::distinct() const {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<Item> kept;
  for (const Item& item : items_) {
    if (!item.second.defined()) continue;
    if (seen.insert(item.second.unsafeGetTensorImpl()).second) kept.push_back(item);
  }
  return kept;
}

std::vector<torch::Tensor> NamedTensors::tensors() const {
  std::vector<torch::Tensor> tensors;
  tensors.reserve(items_.size());
  for (const auto& [name, tensor] : items_) tensors.push_back(tensor);
  return tensors;
}

void broadcast_parameters(const NamedTensors& tensors, int root, Context& context) {
  detail::broadcast_tensors(context, tensors.distinct(), "parameter/", root);
}

void broadcast_parameters(const torch::nn::Module& module, int root, Context& context) {
  broadcast_parameters(NamedTensors::of(module), root, context);
}

void broadcast_parameters(const torch::jit::Module& module, int root, Context& context) {
  broadcast_parameters(NamedTensors::of(module), root, context);
}

}  // namespace hvd
