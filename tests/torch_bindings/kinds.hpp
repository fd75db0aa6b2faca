// The optimizers of LibTorch's C++ API that step without a closure.
#pragma once

#include "contexts.hpp"

namespace hvd::test {

using torch::optim::Optimizer;

struct Kind {
  std::string name;
  /// Makes LibTorch's optimizer, and the one derived by hvd.
  std::function<std::unique_ptr<Optimizer>(std::vector<torch::Tensor>)> make;
  std::function<std::unique_ptr<Optimizer>(const NamedTensors&, DistributedOptimizerOptions)>
      derive;

  friend void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
};

template <class Base, class Options>
Kind kind(const char* name, Options options) {
  return {name,
          [options](std::vector<torch::Tensor> parameters) {
            return std::make_unique<Base>(std::move(parameters), options);
          },
          [options](const NamedTensors& parameters, DistributedOptimizerOptions distributed) {
            return std::make_unique<DistributedOptimizer<Base>>(parameters, options, distributed);
          }};
}

inline std::vector<Kind> kinds() {
  namespace optim = torch::optim;
  return {
      kind<optim::SGD>("SGD", optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-3)),
      kind<optim::Adam>("Adam", optim::AdamOptions(0.01).amsgrad(true)),
      kind<optim::AdamW>("AdamW", optim::AdamWOptions(0.01)),
      kind<optim::Adagrad>("Adagrad", optim::AdagradOptions(0.05)),
      kind<optim::RMSprop>("RMSprop", optim::RMSpropOptions(0.01).momentum(0.5).centered(true)),
  };
}

}  // namespace hvd::test
