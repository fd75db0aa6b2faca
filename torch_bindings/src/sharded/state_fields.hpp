// Lists the fields in the state of a sharded optimizer, and turns its numbers into a row and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

namespace hvd::detail {

/// Pointers to the numbers and tensors in the state of one parameter, or in the options of a group.
struct StateFields {
  std::vector<torch::Tensor*> tensors;
  std::vector<double*> doubles;
  std::vector<std::int64_t*> integers;
  std::vector<bool*> flags;

  template <class... Fields>
  void operator()(Fields&... fields) {
    (add(fields), ...);
  }

 private:
  void add(torch::Tensor& field) { tensors.push_back(&field); }
  void add(double& field) { doubles.push_back(&field); }
  void add(std::int64_t& field) { integers.push_back(&field); }
  void add(bool& field) { flags.push_back(&field); }
  template <class Other>
  void add(Other&) {}  // a field of LBFGS, which is refused
};

/// Returns the empty state of a parameter, of the optimizer's type. Throws Errc::unsupported for an
/// optimizer that does not step each element by itself, as do the functions below.
[[nodiscard]] std::unique_ptr<torch::optim::OptimizerParamState> make_state(
    const torch::optim::Optimizer& optimizer);
[[nodiscard]] StateFields state_fields(const torch::optim::Optimizer& optimizer,
                                       torch::optim::OptimizerParamState& state);
[[nodiscard]] StateFields option_fields(const torch::optim::Optimizer& optimizer,
                                        torch::optim::OptimizerOptions& options);

/// Throws Errc::invalid_argument. `message` continues "the archive".
[[noreturn]] void refuse_state(const std::string& message);

/// Returns all numbers of a state or of options, followed by a flag for each tensor that says
/// whether it is defined.
[[nodiscard]] torch::Tensor numbers_of(const StateFields& fields);
/// Sets the numbers from a row that `numbers_of` has returned, and returns the flags of the
/// tensors. Throws what `refuse_state` throws.
std::vector<bool> set_numbers(const StateFields& fields, const torch::Tensor& numbers);

}  // namespace hvd::detail
