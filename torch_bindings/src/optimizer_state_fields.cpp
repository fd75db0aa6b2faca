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

bool has_state(const torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  return optimizer.state().count(parameter.unsafeGetTensorImpl()) > 0;
}

StateFields state_fields(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  return with_optimizer_kind(code_of(optimizer), [&](auto kind) {
    using State = typename decltype(kind)::State;
    auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
    if (!state) state = std::make_unique<State>();
    StateFields fields;
    visit(fields, static_cast<State&>(*state));
    return fields;
  });
}

StateFields option_fields(torch::optim::Optimizer& optimizer) {
  return with_optimizer_kind(code_of(optimizer), [&](auto kind) {
    using Options = typename decltype(kind)::Options;
    StateFields fields;
    visit(fields, static_cast<Options&>(optimizer.param_groups().front().options()));
    return fields;
  });
}

}  // namespace hvd
