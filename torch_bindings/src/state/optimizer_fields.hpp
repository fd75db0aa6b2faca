// Lists the fields of LibTorch's optimizers. The same lists are used for writing and for reading.
#pragma once

#include <string_view>

#include <torch/optim.h>

namespace hvd::detail {

template <class Coder>
void visit(Coder& coder, torch::optim::AdagradOptions& o) {
  coder(o.lr(), o.lr_decay(), o.weight_decay(), o.initial_accumulator_value(), o.eps());
}
template <class Coder>
void visit(Coder& coder, torch::optim::AdagradParamState& s) {
  coder(s.sum(), s.step());
}

template <class Coder>
void visit(Coder& coder, torch::optim::AdamOptions& o) {
  coder(o.lr(), std::get<0>(o.betas()), std::get<1>(o.betas()), o.eps(), o.weight_decay(),
        o.amsgrad());
}
template <class Coder>
void visit(Coder& coder, torch::optim::AdamParamState& s) {
  coder(s.step(), s.exp_avg(), s.exp_avg_sq(), s.max_exp_avg_sq());
}

template <class Coder>
void visit(Coder& coder, torch::optim::AdamWOptions& o) {
  coder(o.lr(), std::get<0>(o.betas()), std::get<1>(o.betas()), o.eps(), o.weight_decay(),
        o.amsgrad());
}
template <class Coder>
void visit(Coder& coder, torch::optim::AdamWParamState& s) {
  coder(s.step(), s.exp_avg(), s.exp_avg_sq(), s.max_exp_avg_sq());
}

template <class Coder>
void visit(Coder& coder, torch::optim::LBFGSOptions& o) {
  coder(o.lr(), o.max_iter(), o.max_eval(), o.tolerance_grad(), o.tolerance_change(),
        o.history_size(), o.line_search_fn());
}
template <class Coder>
void visit(Coder& coder, torch::optim::LBFGSParamState& s) {
  coder(s.func_evals(), s.n_iter(), s.t(), s.prev_loss(), s.d(), s.H_diag(), s.prev_flat_grad(),
        s.old_dirs(), s.old_stps(), s.ro(), s.al());
}

template <class Coder>
void visit(Coder& coder, torch::optim::RMSpropOptions& o) {
  coder(o.lr(), o.alpha(), o.eps(), o.weight_decay(), o.momentum(), o.centered());
}
template <class Coder>
void visit(Coder& coder, torch::optim::RMSpropParamState& s) {
  coder(s.step(), s.square_avg(), s.momentum_buffer(), s.grad_avg());
}

template <class Coder>
void visit(Coder& coder, torch::optim::SGDOptions& o) {
  coder(o.lr(), o.momentum(), o.dampening(), o.weight_decay(), o.nesterov());
}
template <class Coder>
void visit(Coder& coder, torch::optim::SGDParamState& s) {
  coder(s.momentum_buffer());
}

/// The types of an optimizer's options and of its state of a parameter.
template <class OptionsType, class StateType>
struct OptimizerKind {
  using Options = OptionsType;
  using State = StateType;
};

inline constexpr std::string_view kOptimizerNames[] = {"Adagrad", "Adam",    "AdamW",
                                                       "LBFGS",   "RMSprop", "SGD"};

/// Returns the index of the optimizer's type in `kOptimizerNames`, or -1 when it is none of them.
[[nodiscard]] inline std::int64_t optimizer_code(const torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<const torch::optim::Adagrad*>(&optimizer)) return 0;
  if (dynamic_cast<const torch::optim::Adam*>(&optimizer)) return 1;
  if (dynamic_cast<const torch::optim::AdamW*>(&optimizer)) return 2;
  if (dynamic_cast<const torch::optim::LBFGS*>(&optimizer)) return 3;
  if (dynamic_cast<const torch::optim::RMSprop*>(&optimizer)) return 4;
  if (dynamic_cast<const torch::optim::SGD*>(&optimizer)) return 5;
  return -1;
}

/// Calls `function` with the OptimizerKind of `code`, an index into `kOptimizerNames`.
template <class Function>
auto with_optimizer_kind(std::int64_t code, Function function) {
  namespace optim = torch::optim;
  switch (code) {
    case 0:
      return function(OptimizerKind<optim::AdagradOptions, optim::AdagradParamState>{});
    case 1:
      return function(OptimizerKind<optim::AdamOptions, optim::AdamParamState>{});
    case 2:
      return function(OptimizerKind<optim::AdamWOptions, optim::AdamWParamState>{});
    case 3:
      return function(OptimizerKind<optim::LBFGSOptions, optim::LBFGSParamState>{});
    case 4:
      return function(OptimizerKind<optim::RMSpropOptions, optim::RMSpropParamState>{});
    default:
      return function(OptimizerKind<optim::SGDOptions, optim::SGDParamState>{});
  }
}

}  // namespace hvd::detail
