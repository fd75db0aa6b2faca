#include "elastic/state_parts.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <unordered_set>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/torch/wrapped_optimizer.hpp>

#include "collectives/archive_bytes.hpp"
#include "gradients/gradient_setup.hpp"
#include "state/digest.hpp"

namespace hvd::detail {
namespace {

// A WireWriter writes lengths in 32 bits.
constexpr std::size_t kLongestValue = std::numeric_limits<std::uint32_t>::max();

CountsSteps* counter_of(torch::optim::Optimizer* optimizer) {
  return dynamic_cast<CountsSteps*>(optimizer);
}

/// Copies tensors into others, which are made where they do not fit.
void copy_all(const NamedTensors& from, std::vector<torch::Tensor>& to) {
  const torch::NoGradGuard no_grad;
  const auto& items = from.items();
  to.resize(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const torch::Tensor& tensor = items[i].second;
    torch::Tensor& copy = to[i];
    const bool fits = copy.defined() && copy.sizes() == tensor.sizes() &&
                      copy.scalar_type() == tensor.scalar_type() &&
                      copy.device() == tensor.device();
    if (fits) {
      copy.copy_(tensor);
    } else {
      copy = tensor.detach().clone();
    }
  }
}

/// The program may have put another tensor into its variable.
void set_variable(torch::Tensor& variable, const torch::Tensor& value) {
  const torch::NoGradGuard no_grad;
  if (variable.sizes() == value.sizes() && variable.scalar_type() == value.scalar_type()) {
    variable.detach().copy_(value);
  } else {
    variable = value.clone();
  }
}

void put_all_back(const std::vector<torch::Tensor>& from, const NamedTensors& to) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < from.size(); ++i) {
    torch::Tensor(to.items()[i].second).detach().copy_(from[i]);
  }
}

std::vector<double> rates_of(torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void set_rates(torch::optim::Optimizer& optimizer, const std::vector<double>& rates) {
  for (std::size_t i = 0; i < rates.size(); ++i) {
    optimizer.param_groups().at(i).options().set_lr(rates[i]);
  }
}

std::unordered_set<const c10::TensorImpl*> parameters_of(
    const std::vector<torch::optim::Optimizer*>& optimizers) {
  std::unordered_set<const c10::TensorImpl*> parameters;
  for (const torch::optim::Optimizer* const optimizer : optimizers) {
    if (is_divided(*optimizer)) continue;  // its parameters are shards
    for (const auto& group : optimizer->param_groups()) {
      for (const torch::Tensor& parameter : group.params()) {
        parameters.insert(parameter.unsafeGetTensorImpl());
      }
    }
  }
  return parameters;
}

void add_all(std::vector<NamedTensors::Item>& to, const NamedTensors& more) {
  for (const auto& [name, tensor] : more.items()) {
    to.emplace_back(std::to_string(to.size()) + "." + name, tensor);
  }
}

}  // namespace

NamedTensors StateParts::parameters() const {
  std::vector<NamedTensors::Item> all;
  for (const torch::nn::Module* const module : modules) add_all(all, *module);
  return NamedTensors(std::move(all)).distinct();
}

NamedTensors StateParts::parameters_without_optimizer() const {
  const auto stepped = parameters_of(optimizers);
  std::vector<NamedTensors::Item> rest;
  for (auto& [name, tensor] : parameters().items()) {
    if (!stepped.contains(tensor.unsafeGetTensorImpl())) rest.emplace_back(name, tensor);
  }
  return NamedTensors(std::move(rest));
}

NamedTensors StateParts::buffers() const {
  std::vector<NamedTensors::Item> all;
  for (const torch::nn::Module* const module : modules) add_all(all, module->named_buffers());
  return NamedTensors(std::move(all)).distinct();
}

bool StateParts::has_all_parameters() const {
  std::unordered_set<const c10::TensorImpl*> added;
  for (const torch::Tensor& tensor : parameters().tensors()) {
    added.insert(tensor.unsafeGetTensorImpl());
  }
  for (const torch::Tensor* const tensor : tensors) added.insert(tensor->unsafeGetTensorImpl());
  const auto stepped = parameters_of(optimizers);
  return std::all_of(stepped.begin(), stepped.end(),
                     [&added](const auto* parameter) { return added.contains(parameter); });
}

std::vector<NamedDigest> StateParts::describe() const {
  Digest kinds;
  for (const NamedTensors& list : {parameters(), buffers()}) {
    kinds.add(list.size());
    for (const auto& [name, tensor] : list.items()) kinds.add_kind(tensor);
  }
  return {{"the number of modules", modules.size()},
          {"the number of optimizers", optimizers.size()},
          {"the number of samplers", samplers.size()},
          {"the number of tensors", tensors.size()},
          {"the number of variables", values.size()},
          {"the dtypes and shapes of the tensors", kinds.value()}};
}

std::int64_t StateParts::completed_steps() const {
  std::int64_t steps = 0;
  for (torch::optim::Optimizer* const optimizer : optimizers) {
    if (CountsSteps* const counter = counter_of(optimizer))
      steps += counter->step_count().completed;
  }
  return steps;
}

bool StateParts::has_divided() const {
  return std::any_of(optimizers.begin(), optimizers.end(),
                     [](const auto* optimizer) { return is_divided(*optimizer); });
}

bool StateParts::has_unmirrored() const {
  return std::any_of(optimizers.begin(), optimizers.end(), [](const auto* optimizer) {
    return is_divided(*optimizer) && mirror_of(*optimizer) == nullptr;
  });
}

std::string StateParts::why_uncertain() const {
  for (torch::optim::Optimizer* const optimizer : optimizers) {
    if (is_divided(*optimizer) && mirror_of(*optimizer) == nullptr) {
      return "the state of its ShardedOptimizer is divided among the ranks, and a part is lost "
             "with each of them unless it has the option mirror";
    }
    const CountsSteps* const counter = counter_of(optimizer);
    if (counter == nullptr) {
      return fmt::format("an optimizer of its own ({}) steps, which is not a DistributedOptimizer",
                         kind_of(*optimizer));
    }
    if (!counter->steps_at_once()) {
      return fmt::format("its DistributedOptimizer of {} communicates while it steps",
                         kind_of(*optimizer));
    }
  }
  return {};
}

bool StateParts::certain() const {
  return !has_unmirrored() &&
         std::all_of(optimizers.begin(), optimizers.end(), [](auto* optimizer) {
           CountsSteps* const counter = counter_of(optimizer);
           return counter != nullptr && !counter->step_count().underway;
         });
}

void StateSnapshot::take(const StateParts& parts) {
  copy_all(parts.buffers(), buffers_);
  tensors_.clear();
  for (const torch::Tensor* const tensor : parts.tensors) {
    tensors_.push_back(tensor->detach().clone());
  }
  values_.clear();
  for (const StateValue& value : parts.values) {
    values_.push_back(value.read());
    // When the ranks change, it would be too late: the other ranks would wait for the value.
    if (values_.back().size() > kLongestValue) {
      throw Error(
          Errc::invalid_argument,
          fmt::format("ElasticState: number {} of the {} numbers, strings, schedulers and "
                      "saved objects has {} bytes; at most {} can be sent",
                      values_.size(), parts.values.size(), values_.back().size(), kLongestValue));
    }
  }
  rates_.clear();
  for (auto* const optimizer : parts.optimizers) rates_.push_back(rates_of(*optimizer));
  marks_.clear();
  for (const auto* const sampler : parts.samplers)
    marks_.push_back(SamplerProgress::mark(*sampler));
  random_ = at::detail::getDefaultCPUGenerator().get_state();
}

void StateSnapshot::put_back(const StateParts& parts) const {
  put_all_back(buffers_, parts.buffers());
  for (std::size_t i = 0; i < tensors_.size(); ++i) set_variable(*parts.tensors[i], tensors_[i]);
  for (std::size_t i = 0; i < values_.size(); ++i) parts.values[i].write(values_[i]);
  for (std::size_t i = 0; i < rates_.size(); ++i) set_rates(*parts.optimizers[i], rates_[i]);
}

void StateSnapshot::put_back_random() const {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(random_);
}

void StateSnapshot::write_values(WireWriter& to, const StateParts& parts) const {
  for (const StateValue& value : parts.values) to.text(value.read());
  for (torch::optim::Optimizer* const optimizer : parts.optimizers) {
    const std::vector<double> rates = rates_of(*optimizer);
    to.u32(static_cast<std::uint32_t>(rates.size()));
    for (const double rate : rates) to.f64(rate);
  }
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    to.blob(SamplerProgress::at(*parts.samplers[i], marks_[i]));
  }
}

void StateSnapshot::read_values(WireReader& from, const StateParts& parts, const Context& context) {
  for (const StateValue& value : parts.values) value.write(from.text(kLongestValue));
  for (torch::optim::Optimizer* const optimizer : parts.optimizers) {
    std::vector<double> rates(from.count(sizeof(double)));
    for (double& rate : rates) rate = from.f64();
    set_rates(*optimizer, rates);
  }
  for (ElasticSampler* const sampler : parts.samplers) {
    const auto bytes = from.blob(kLongestValue);
    SamplerProgress::go_on(*sampler, {bytes.begin(), bytes.end()}, context);
  }
}

bool is_divided(const torch::optim::Optimizer& optimizer) {
  return dynamic_cast<const DividesState*>(&optimizer) != nullptr;
}

ShardMirror* mirror_of(const torch::optim::Optimizer& optimizer) {
  const auto* const divided = dynamic_cast<const DividesState*>(&optimizer);
  return divided == nullptr ? nullptr : divided->mirror();
}

void restore_divided(torch::optim::Optimizer& optimizer, const Bytes& state) {
  auto archive = archive_of(state, "the state of a ShardedOptimizer", torch::Device(torch::kCPU));
  optimizer.load(archive);
}

void StateCopy::take(const StateParts& parts) {
  std::vector<OptimizerCopy> copies;
  for (auto* const optimizer : parts.optimizers) {
    if (const auto* const divided = dynamic_cast<const DividesState*>(optimizer)) {
      torch::serialize::OutputArchive archive;
      divided->save_on_all_ranks(archive);
      copies.push_back({bytes_of(archive), {}});
    } else {
      copies.push_back(copy_of(*optimizer));
    }
  }
  optimizers = std::move(copies);
  snapshot.take(parts);
  copy_all(parts.parameters(), parameters);
  samplers.clear();
  for (const auto* const sampler : parts.samplers) {
    samplers.push_back(SamplerProgress::now(*sampler));
  }
}

void StateCopy::put_back(const StateParts& parts, const Context& context) const {
  put_all_back(parameters, parts.parameters());
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    torch::optim::Optimizer& optimizer = *parts.optimizers[i];
    if (is_divided(optimizer)) {
      restore_divided(optimizer, optimizers[i].fields);
    } else {
      restore(optimizer, optimizers[i]);
    }
  }
  snapshot.put_back(parts);
  snapshot.put_back_random();
  for (std::size_t i = 0; i < samplers.size(); ++i) {
    SamplerProgress::go_on(*parts.samplers[i], samplers[i], context);
  }
}

}  // namespace hvd::detail
