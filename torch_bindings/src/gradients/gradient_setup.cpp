#include "gradients/gradient_setup.hpp"

#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/torch/wrapped_optimizer.hpp>

#include "collectives/tensor_traits.hpp"
#include "gradients/gradient_hook.hpp"
#include "state/digest.hpp"
#include "state/optimizer_fields.hpp"

namespace hvd::detail {

void misuse(const std::string& message, std::string_view who) {
  throw Error(Errc::invalid_argument, fmt::format("{}: {}", who, message));
}

void check_reduction(ReduceOp op, int backward_passes_per_step, bool weighted,
                     std::string_view who) {
  if (op != ReduceOp::average && op != ReduceOp::sum) {
    misuse(fmt::format("op is average or sum, not {}", to_string(op)), who);
  }
  if (backward_passes_per_step < 1) {
    misuse(fmt::format("backward_passes_per_step is {}, not positive", backward_passes_per_step),
           who);
  }
  if (weighted && op != ReduceOp::average) misuse("weighted needs the op average", who);
}

void check_options(const DistributedOptimizerOptions& options, std::string_view who) {
  check_reduction(options.op, options.backward_passes_per_step, options.weighted, who);
  if (options.weighted && options.adasum) misuse("weighted and adasum exclude each other", who);
  if (options.step_in_backward &&
      (options.backward_passes_per_step > 1 || options.adasum || !options.wait_in_backward)) {
    misuse(
        "step_in_backward excludes backward_passes_per_step, adasum, and wait_in_backward = false",
        who);
  }
  const double factor = options.gradient_predivide_factor;
  if (!std::isfinite(factor) || factor <= 0) {
    misuse(fmt::format("gradient_predivide_factor is {}, not positive", factor), who);
  }
  if (factor != 1.0 && options.op != ReduceOp::average) {
    misuse("gradient_predivide_factor needs the op average", who);
  }
  if (options.compressor && options.compression != Compression::none) {
    misuse("compression and compressor exclude each other", who);
  }
  if (options.compressor && (options.num_groups > 0 || !options.groups.empty())) {
    misuse("compressor and groups exclude each other", who);
  }
  if (options.num_groups < 0) misuse(fmt::format("num_groups is {}", options.num_groups), who);
  if (options.num_groups > 0 && !options.groups.empty()) {
    misuse("num_groups and groups are two ways to say the same", who);
  }
}

std::size_t parameter_count(const torch::optim::Optimizer& optimizer) {
  std::size_t count = 0;
  for (const auto& group : optimizer.param_groups()) count += group.params().size();
  return count;
}

NamedTensors parameters_of(const ParameterGroups& groups, const NamedTensors& named,
                           std::string_view who) {
  std::unordered_set<const c10::TensorImpl*> wanted;
  for (const auto& group : groups) {
    for (const torch::Tensor& parameter : group.params()) {
      wanted.insert(parameter.unsafeGetTensorImpl());
    }
  }
  std::vector<NamedTensors::Item> chosen;
  for (const auto& item : named.distinct().items()) {
    if (wanted.erase(item.second.unsafeGetTensorImpl()) > 0) chosen.push_back(item);
  }
  if (!wanted.empty()) {
    misuse(fmt::format("{} parameters of the optimizer have no name. Pass the named parameters of "
                       "every model that it steps",
                       wanted.size()),
           who);
  }
  return checked_parameters(chosen, who);
}

NamedTensors checked_parameters(const NamedTensors& named, std::string_view who) {
  const NamedTensors distinct = named.distinct();
  std::unordered_set<std::string> names;
  for (const auto& [name, tensor] : distinct.items()) {
    if (name.empty()) misuse("a parameter has an empty name", who);
    if (!names.insert(name).second) {
      misuse(fmt::format("two parameters are named {}. Pass the named parameters of the model that "
                         "this optimizer steps; if it steps two models, pass hvd::NamedTensors::"
                         "joined({{{{\"first\", *first}}, {{\"second\", *second}}}})",
                         name),
             who);
    }
    require_supported(tensor);
    if (tensor.requires_grad() && GradientHook::is_on(tensor)) {
      misuse(fmt::format("{} is a parameter of another distributed optimizer or "
                         "DistributedDataParallel, which must be destroyed first",
                         name),
             who);
    }
  }
  return distinct;
}

std::vector<int> groups_of(const NamedTensors& parameters,
                           const DistributedOptimizerOptions& options) {
  const std::size_t count = parameters.size();
  std::vector<int> group_of(count, -1);
  if (options.num_groups > 0) {
    const std::size_t groups = std::min(static_cast<std::size_t>(options.num_groups), count);
    for (std::size_t i = 0; i < count; ++i) group_of[i] = static_cast<int>(i * groups / count);
  }
  std::unordered_map<std::string, std::size_t> index_of;
  for (const auto& item : parameters.items()) index_of.emplace(item.first, index_of.size());
  for (std::size_t group = 0; group < options.groups.size(); ++group) {
    for (const std::string& name : options.groups[group]) {
      const auto at = index_of.find(name);
      if (at == index_of.end()) misuse(fmt::format("groups names {}, no parameter", name));
      int& mine = group_of[at->second];
      if (mine >= 0) misuse(fmt::format("groups names {} twice", name));
      mine = static_cast<int>(group);
    }
  }
  return group_of;
}

std::vector<NamedDigest> describe_parameters(const NamedTensors& parameters,
                                             const DistributedOptimizerOptions& options) {
  const std::vector<int> group_of = groups_of(parameters, options);
  std::vector<NamedDigest> digests;
  for (const auto& [name, parameter] : parameters.items()) {
    Digest digest;
    digest.add(name);
    digest.add_kind(parameter);
    digest.add(parameter.requires_grad() ? 1 : 0);
    digest.add(static_cast<std::uint64_t>(group_of[digests.size()]));
    // Gradients have the strides of the parameters, and are reduced in the order of their memory.
    for (const auto stride : parameter.strides()) digest.add(static_cast<std::uint64_t>(stride));
    digests.emplace_back("parameter " + name, digest.value());
  }
  return digests;
}

std::vector<NamedDigest> describe_options(const DistributedOptimizerOptions& options) {
  std::vector<NamedDigest> digests;
  const auto add = [&digests](const char* name, const auto& value) {
    digests.push_back(digest_of_option(name, fmt::to_string(value)));
  };
  add("op", static_cast<int>(options.op));
  add("backward_passes_per_step", options.backward_passes_per_step);
  add("average_accumulated", options.average_accumulated);
  add("gradient_predivide_factor", options.gradient_predivide_factor);
  add("compression", static_cast<int>(options.compression));
  add("compressor", options.compressor ? options.compressor->description() : std::string());
  add("adasum", options.adasum);
  add("weighted", options.weighted);
  add("sparse_as_dense", options.sparse_as_dense);
  add("wait_in_backward", options.wait_in_backward);
  add("step_in_backward", options.step_in_backward);
  add("broadcast_parameters", options.broadcast_parameters);
  add("broadcast_buffers", options.broadcast_buffers);
  add("name_prefix", options.name_prefix);
  return digests;
}

NamedDigest digest_of_option(std::string_view name, std::string_view value) {
  Digest digest;
  digest.add(value);
  return {fmt::format("option {}", name), digest.value()};
}

std::string agree_on_optimizer(Context& context, std::vector<NamedDigest> mine,
                               std::int32_t process_set, const std::string& kind,
                               const std::string& name_prefix) {
  const std::int64_t instance = agree_on_instance(context, "optimizer", process_set);
  Digest digest;
  digest.add(kind);
  mine.emplace(mine.begin(), "the class, here " + kind, digest.value());
  const std::string difference = first_difference(context, mine, "optimizer", process_set);
  if (difference.empty()) return fmt::format("{}/{}", name_prefix, instance);
  throw Error(Errc::mismatch,
              fmt::format("{}: not the same on all ranks: {}. Each rank constructs its optimizers "
                          "in the same order, for equal models and with equal options",
                          kind, difference));
}

std::string_view kind_of(const torch::optim::Optimizer& optimizer) {
  const std::int64_t code = optimizer_code(unwrapped(optimizer));
  return code < 0 ? "another class" : kOptimizerNames[code];
}

double factor_of_fewer_passes(bool average, int passes, int planned) noexcept {
  return average && passes > 0 && passes < planned ? static_cast<double>(planned) / passes : 1;
}

}  // namespace hvd::detail
