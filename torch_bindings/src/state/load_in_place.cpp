#include <hvd/torch/load_in_place.hpp>
#include <hvd/torch/optimizer_parts.hpp>
#include <hvd/torch/wrapped_optimizer.hpp>

#include "state/optimizer_copy.hpp"
#include "state/optimizer_fields.hpp"

namespace hvd::detail {

void TensorValues::keep(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors.distinct().items()) {
    all_.push_back({tensor, tensor.variable_data()});
  }
}

void TensorValues::put_back_devices() const {
  const torch::NoGradGuard no_grad;
  try {
    for (const Kept& kept : all_) {
      torch::Tensor tensor = kept.tensor;
      const torch::Device device = kept.before.device();
      if (tensor.device() != device) tensor.set_data(tensor.variable_data().to(device));
    }
  } catch (...) {  // the device has no memory left
    put_back();
    throw;
  }
}

void TensorValues::put_back() const {
  for (const Kept& kept : all_) torch::Tensor(kept.tensor).set_data(kept.before);
}

void move_state_to_parameters(torch::optim::Optimizer& optimizer) {
  if (optimizer_code(unwrapped(optimizer)) < 0) return;
  if (dynamic_cast<const DividesState*>(&optimizer)) return;  // it loads its state to its shards
  for (const auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      if (parameter.is_cpu()) continue;
      restore(optimizer, copy_of(optimizer));  // makes each tensor on the device of its parameter
      return;
    }
  }
}

}  // namespace hvd::detail
