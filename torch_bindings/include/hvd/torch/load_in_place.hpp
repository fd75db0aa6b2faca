// Loads objects whose tensors stay on the devices where they are.
#pragma once

#include <concepts>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/serialize.h>

#include <hvd/torch/named_tensors.hpp>

namespace hvd::detail {

/// Keeps what tensors hold, without a copy, while LibTorch's reader puts other values into them.
/// The reader puts these on the device of the archive, whatever device the tensor was on.
class TensorValues {
 public:
  void keep(const NamedTensors& tensors);
  /// Moves the new values to the devices where the tensors were. Throws std::invalid_argument, and
  /// restores the old values, if a tensor has become one of another dtype.
  void return_to_devices() const;
  void restore() const;

 private:
  struct Kept {
    torch::Tensor tensor;
    torch::Tensor before;
  };
  std::vector<Kept> all_;
};

/// Moves the state of an optimizer of LibTorch to the devices of its parameters.
void move_state_to_parameters(torch::optim::Optimizer& optimizer);

/// Reads an archive whose tensors are on the CPU. Modules and tensors stay on their devices, and
/// the state of an optimizer goes to those of its parameters. Modules and tensors keep their values
/// when the archive cannot be read.
template <class T>
void load_in_place(torch::serialize::InputArchive& archive, T& part) {
  using torch::operator>>;  // argument-dependent lookup does not find it for tensors
  TensorValues values;
  if constexpr (ModulePointer<T>) {
    values.keep(NamedTensors::of(*part));
  } else if constexpr (std::same_as<T, torch::Tensor>) {
    values.keep({{"", part}});
  }
  try {
    archive >> part;
  } catch (...) {
    values.restore();
    throw;
  }
  values.return_to_devices();
  if constexpr (std::derived_from<T, torch::optim::Optimizer>) move_state_to_parameters(part);
}

}  // namespace hvd::detail
