#include "optimizer_state_fields.hpp"

#include <hvd/core/error.hpp>

#include "optimizer_fields.hpp"

namespace hvd {
namespace {

std::int64_t code_of(const torch::optim::Optimizer& optimizer) {
  const std::int64_t code = optimizer_code(optimizer);
  if (code < 0 || kOptimizerNames[code] == "LBFGS") {
    throw Error(Errc::unsupported,
                "sharded: only SGD, Adam, AdamW, Adagrad and RMSprop step element by element");
  }
  return code;
}

}  // namespace

std::unique_ptr<torch::optim::OptimizerParamState> make_state(
    const torch::optim::Optimizer& optimizer) {
  return with_optimizer_kind(code_of(optimizer),
                             [](auto kind) -> std::unique_ptr<torch::optim::OptimizerParamState> {
                               return std::make_unique<typename decltype(kind)::State>();
                             });
}

StateFields state_fields(const torch::optim::Optimizer& optimizer,
                         torch::optim::OptimizerParamState& state) {
  return with_optimizer_kind(code_of(optimizer), [&](auto kind) {
    StateFields fields;
    visit(fields, static_cast<typename decltype(kind)::State&>(state));
    return fields;
  });
}

StateFields option_fields(const torch::optim::Optimizer& optimizer,
                          torch::optim::OptimizerOptions& options) {
  return with_optimizer_kind(code_of(optimizer), [&](auto kind) {
    StateFields fields;
    visit(fields, static_cast<typename decltype(kind)::Options&>(options));
    return fields;
  });
}

}  // namespace hvd
