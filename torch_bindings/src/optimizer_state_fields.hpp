// The numbers and tensors in the state that an optimizer keeps for a parameter.
#pragma once

#include <cstdint>
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

/// Of one of the optimizers that step element by element. The state is made when there is none.
/// Throws Errc::unsupported for another optimizer.
[[nodiscard]] StateFields state_fields(torch::optim::Optimizer& optimizer,
                                       const torch::Tensor& parameter);
[[nodiscard]] StateFields option_fields(torch::optim::Optimizer& optimizer);
[[nodiscard]] bool has_state(const torch::optim::Optimizer& optimizer,
                             const torch::Tensor& parameter);

}  // namespace hvd
