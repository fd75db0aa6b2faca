#include "sharded/state_fields.hpp"

#include <cmath>

#include <hvd/core/error.hpp>

#include "state/optimizer_fields.hpp"

namespace hvd::detail {
namespace {

/// Throws Errc::unsupported for an optimizer that does not step each element by itself.
std::int64_t code_of(const torch::optim::Optimizer& optimizer) {
  const std::int64_t code = optimizer_code(optimizer);
  if (code < 0 || kOptimizerNames[code] == "LBFGS") {
    throw Error(Errc::unsupported,
                "sharded: only SGD, Adam, AdamW, Adagrad and RMSprop step element by element");
  }
  return code;
}

bool flag_of(double number) {
  if (number != 0 && number != 1) refuse_state("is damaged: a flag is neither 0 nor 1");
  return number == 1;
}

std::int64_t integer_of(double number) {
  constexpr double kExact = 1LL << 53;
  if (std::trunc(number) != number || std::abs(number) > kExact) {
    refuse_state("is damaged: a count is no whole number");
  }
  return static_cast<std::int64_t>(number);
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

[[noreturn]] void refuse_state(const std::string& message) {
  throw Error(Errc::invalid_argument, "ShardedOptimizer: the archive " + message);
}

torch::Tensor numbers_of(const StateFields& fields) {
  std::vector<double> numbers;
  for (const double* value : fields.doubles) numbers.push_back(*value);
  for (const std::int64_t* value : fields.integers) numbers.push_back(static_cast<double>(*value));
  for (const bool* value : fields.flags) numbers.push_back(*value ? 1 : 0);
  for (const torch::Tensor* tensor : fields.tensors) numbers.push_back(tensor->defined() ? 1 : 0);
  return torch::tensor(numbers, torch::kFloat64);
}

std::vector<bool> set_numbers(const StateFields& fields, const torch::Tensor& numbers) {
  const std::int64_t count = std::ssize(fields.doubles) + std::ssize(fields.integers) +
                             std::ssize(fields.flags) + std::ssize(fields.tensors);
  if (numbers.scalar_type() != torch::kFloat64 || numbers.dim() != 1 || numbers.numel() != count) {
    refuse_state("is damaged: there are other fields");
  }
  const torch::Tensor row = numbers.cpu().contiguous();
  const double* next = row.const_data_ptr<double>();
  for (double* value : fields.doubles) *value = *next++;
  for (std::int64_t* value : fields.integers) *value = integer_of(*next++);
  for (bool* value : fields.flags) *value = flag_of(*next++);
  std::vector<bool> present;
  for (std::size_t i = 0; i < fields.tensors.size(); ++i) present.push_back(flag_of(*next++));
  return present;
}

}  // namespace hvd::detail
