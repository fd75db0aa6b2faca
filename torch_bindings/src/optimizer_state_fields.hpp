// The numbers and tensors in the state that an optimizer keeps for a parameter.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>

namespace hvd {

/// Points into the state of one parameter, or at the options of a group.
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
  void add(Other&) {}  // LBFGS's, whose state no element has to itself
};

// Of the optimizers that step element by element; Errc::unsupported for others.

/// As the optimizer makes it for a parameter, with nothing in it.
[[nodiscard]] std::unique_ptr<torch::optim::OptimizerParamState> make_state(
    const torch::optim::Optimizer& optimizer);
/// Of a state, or of a group's options, that are the optimizer's kind.
[[nodiscard]] StateFields state_fields(const torch::optim::Optimizer& optimizer,
                                       torch::optim::OptimizerParamState& state);
[[nodiscard]] StateFields option_fields(const torch::optim::Optimizer& optimizer,
                                        torch::optim::OptimizerOptions& options);

}  // namespace hvd
