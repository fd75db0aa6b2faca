#include <tuple>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/estimator/trainable.hpp>

namespace hvd {

namespace {

using Tensors = Trainable::Tensors;
using torch::Tensor;

constexpr std::size_t kMostInputs = 8;

template <class Function, std::size_t... kIndex>
auto call(Function& function, const Tensors& inputs, std::index_sequence<kIndex...>) {
  return function(Tensor(inputs[kIndex])...);
}

/// Calls `function` with as many arguments as there are inputs.
template <std::size_t kCount = 1, class Function>
auto spread(Function& function, const Tensors& inputs) {
  if constexpr (kCount < kMostInputs) {
    if (inputs.size() > kCount) return spread<kCount + 1>(function, inputs);
  }
  return call(function, inputs, std::make_index_sequence<kCount>());
}

void require_few(const Tensors& inputs) {
  if (inputs.empty() || inputs.size() > kMostInputs) {
    throw Error(Errc::invalid_argument,
                fmt::format("model: it is called with {} inputs; expected 1 to {}", inputs.size(),
                            kMostInputs));
  }
}

template <class Tuple>
bool append_tuple(torch::nn::AnyValue& value, Tensors& outputs) {
  Tuple* const tuple = value.try_get<Tuple>();
  if (tuple == nullptr) return false;
  std::apply([&outputs](auto&... each) { (outputs.push_back(each), ...); }, *tuple);
  return true;
}

Tensors tensors_of(torch::nn::AnyValue value) {
  if (auto* const one = value.try_get<Tensor>()) return {*one};
  if (auto* const many = value.try_get<Tensors>()) return *many;
  Tensors outputs;
  if (append_tuple<std::pair<Tensor, Tensor>>(value, outputs) ||
      append_tuple<std::tuple<Tensor, Tensor>>(value, outputs) ||
      append_tuple<std::tuple<Tensor, Tensor, Tensor>>(value, outputs) ||
      append_tuple<std::tuple<Tensor, Tensor, Tensor, Tensor>>(value, outputs)) {
    return outputs;
  }
  throw Error(
      Errc::invalid_argument,
      fmt::format("model: forward() returns {}; expected a tensor, a pair or tuple of up to "
                  "four, or a vector of them",
                  c10::demangle(value.type_info().name())));
}

}  // namespace

Trainable::Trainable(torch::nn::AnyModule module) {
  if (module.is_empty()) return;
  module_ = module.ptr();
  forward_ = [module = std::move(module)](const Tensors& inputs) mutable {
    require_few(inputs);
    const auto forward = [&module](auto... each) { return module.any_forward(each...); };
    return tensors_of(spread(forward, inputs));
  };
}

Trainable::Trainable(const torch::nn::Sequential& net) : module_(net.ptr()) {
  forward_ = [net = net.ptr()](const Tensors& inputs) {
    require_few(inputs);
    const auto forward = [&net](auto... each) { return net->forward<Tensor>(each...); };
    return Tensors{spread(forward, inputs)};
  };
}

Trainable::Trainable(std::shared_ptr<torch::nn::Module> module, Forward forward)
    : module_(std::move(module)), forward_(std::move(forward)) {}

torch::nn::Module& Trainable::module() const {
  if (!module_) throw Error(Errc::invalid_argument, "model: there is none");
  return *module_;
}

torch::Device Trainable::device() const {
  const Tensors parameters = module().parameters();
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters.front().device();
}

Trainable::Tensors Trainable::forward(const Tensors& inputs) const {
  const torch::Device where = device();
  try {
    Tensors moved;
    for (const Tensor& input : inputs) moved.push_back(input.to(where));
    return forward_(moved);
  } catch (const c10::Error& error) {
    std::string shapes;
    for (const Tensor& input : inputs) {
      shapes += fmt::format("{}{}", shapes.empty() ? "" : ", ", c10::str(input.sizes()));
    }
    throw Error(Errc::invalid_argument, fmt::format("model: forward() of inputs {}: {}", shapes,
                                                    error.what_without_backtrace()));
  }
}

}  // namespace hvd
