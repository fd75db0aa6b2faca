#include <stdexcept>

#include <fmt/format.h>

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

void TensorValues::return_to_devices() const {
  const torch::NoGradGuard no_grad;
  try {
    for (const auto& [changed, before] : all_) {
      torch::Tensor tensor = changed;
      // LibTorch's reader refuses this only for tensors on the device of the archive.
      if (tensor.scalar_type() != before.scalar_type()) {
        throw std::invalid_argument(fmt::format("a tensor is {}, and the archive has {}",
                                                torch::toString(before.scalar_type()),
                                                torch::toString(tensor.scalar_type())));
      }
      if (tensor.device() == before.device()) continue;
      tensor.set_data(tensor.variable_data().to(before.device()));
    }
  } catch (...) {  // also when the device has no memory left
    restore();
    throw;
  }
}

void TensorValues::restore() const {
  for (const Kept& kept : all_) torch::Tensor(kept.tensor).set_data(kept.before);
}

void move_state_to_parameters(torch::optim::Optimizer& optimizer) {
  if (optimizer_code(unwrapped(optimizer)) < 0) return;
  if (dynamic_cast<const DividesState*>(&optimizer)) return;  // it loads its state to its shards
  restore(optimizer, copy_of(optimizer));  // makes each tensor on the device of its parameter
}

}  // namespace hvd::detail
