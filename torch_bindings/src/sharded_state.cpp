#include "sharded_state.hpp"

#include <cmath>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/torch/collectives.hpp>

#include "optimizer_fields.hpp"
#include "optimizer_state_fields.hpp"

namespace hvd {
namespace {

using torch::optim::Optimizer;
using torch::serialize::InputArchive;

// The archive's entries. Keys hold no dots: LibTorch would take them for modules.
constexpr std::int64_t kFormat = 2;
const std::string kFormatKey = "format";
const std::string kOptimizerKey = "optimizer";
const std::string kCountKey = "parameters";
const std::string kGroupsKey = "groups";

std::string options_key(std::size_t group) { return fmt::format("options_{}", group); }
std::string key(std::int64_t parameter, const char* what) {
  return fmt::format("parameter_{}_{}", parameter, what);
}
std::string tensor_key(std::int64_t parameter, std::size_t field) {
  return fmt::format("parameter_{}_tensor_{}", parameter, field);
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Errc::invalid_argument, "ShardedOptimizer: the archive " + message);
}

std::string optimizer_name(const Optimizer& optimizer) {
  const std::int64_t code = optimizer_code(optimizer);
  return code < 0 ? "other" : std::string(kOptimizerNames[code]);
}

/// All numbers of a state or of options, and which tensors it has.
torch::Tensor numbers_of(const StateFields& fields) {
  std::vector<double> numbers;
  for (const double* value : fields.doubles) numbers.push_back(*value);
  for (const std::int64_t* value : fields.integers) numbers.push_back(static_cast<double>(*value));
  for (const bool* value : fields.flags) numbers.push_back(*value ? 1 : 0);
  for (const torch::Tensor* tensor : fields.tensors) numbers.push_back(tensor->defined() ? 1 : 0);
  return torch::tensor(numbers, torch::kFloat64);
}

bool flag_of(double number) {
  if (number != 0 && number != 1) refuse("is damaged: a flag is neither 0 nor 1");
  return number == 1;
}

std::int64_t integer_of(double number) {
  constexpr double kExact = 1LL << 53;
  if (std::trunc(number) != number || std::abs(number) > kExact) {
    refuse("is damaged: a count is no whole number");
  }
  return static_cast<std::int64_t>(number);
}

/// The reverse; returns which tensors there are.
std::vector<bool> set_numbers(const StateFields& fields, const torch::Tensor& numbers) {
  const std::int64_t count = std::ssize(fields.doubles) + std::ssize(fields.integers) +
                             std::ssize(fields.flags) + std::ssize(fields.tensors);
  if (numbers.scalar_type() != torch::kFloat64 || numbers.dim() != 1 || numbers.numel() != count) {
    refuse("is damaged: there are other fields");
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

/// Everything of an archive that one optimizer needs, read before anything is changed.
class SavedState {
 public:
  SavedState(InputArchive& archive, const Optimizer& optimizer)
      : archive_(archive), optimizer_(optimizer) {
    if (const auto format = value<std::int64_t>(kFormatKey); format != kFormat) {
      refuse(fmt::format("has format {}, not {}", format, kFormat));
    }
    const auto saved = value<std::string>(kOptimizerKey);
    if (saved != optimizer_name(optimizer)) {
      refuse(fmt::format("is of {}, not {}", saved, optimizer_name(optimizer)));
    }
    const auto count = value<std::int64_t>(kCountKey);
    for (std::int64_t i = 0; i < count; ++i) {
      if (!places_.emplace(value<std::string>(key(i, "name")), i).second) {
        refuse("is damaged: it holds a parameter twice");
      }
    }
    const auto groups = value<std::int64_t>(kGroupsKey);
    if (groups != std::ssize(optimizer.param_groups())) {
      refuse(
          fmt::format("has {} parameter groups, not {}", groups, optimizer.param_groups().size()));
    }
  }

  [[nodiscard]] std::size_t parameters() const { return places_.size(); }

  [[nodiscard]] std::unique_ptr<torch::optim::OptimizerOptions> options(std::size_t group) {
    auto options = optimizer_.param_groups()[group].options().clone();
    set_numbers(option_fields(optimizer_, *options), tensor(options_key(group)));
    return options;
  }

  /// Of this rank's shard; null: there was none yet.
  [[nodiscard]] std::unique_ptr<torch::optim::OptimizerParamState> state(
      const ShardBucket& bucket) {
    std::vector<std::int64_t> places;
    for (const auto& [name, parameter] : bucket.parameters()) {
      places.push_back(place_of(name, parameter, bucket.group()));
    }
    const torch::Tensor numbers = tensor(key(places.front(), "numbers"));
    for (const std::int64_t place : places) {
      if (place == places.front()) continue;
      if (!torch::equal(tensor(key(place, "numbers")), numbers)) {
        refuse(
            fmt::format("has made other steps with {} than with {}, which are in one bucket: "
                        "choose other bucket_bytes",
                        bucket.parameters().front().first, value<std::string>(key(place, "name"))));
      }
    }
    // Adagrad has its state from its construction on.
    if (numbers.numel() == 0 && optimizer_name(optimizer_) != "Adagrad") return nullptr;
    auto state = make_state(optimizer_);
    const StateFields fields = state_fields(optimizer_, *state);
    const std::vector<bool> present = set_numbers(fields, numbers);
    for (std::size_t field = 0; field < present.size(); ++field) {
      if (present[field]) *fields.tensors[field] = shard_of(bucket, places, field);
    }
    return state;
  }

 private:
  [[nodiscard]] std::int64_t place_of(const std::string& name, const torch::Tensor& parameter,
                                      std::size_t group) {
    const auto at = places_.find(name);
    if (at == places_.end()) refuse("holds no parameter " + name);
    if (torch::IntArrayRef(value<std::vector<std::int64_t>>(key(at->second, "shape"))) !=
        parameter.sizes()) {
      refuse("has another shape for " + name);
    }
    const auto saved = value<std::int64_t>(key(at->second, "group"));
    if (saved != static_cast<std::int64_t>(group)) {
      refuse(fmt::format("has {} in group {}, not {}", name, saved, group));
    }
    return at->second;
  }

  [[nodiscard]] torch::Tensor shard_of(const ShardBucket& bucket,
                                       const std::vector<std::int64_t>& places, std::size_t field) {
    std::vector<torch::Tensor> parts;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto& [name, parameter] = bucket.parameters()[i];
      torch::Tensor part = tensor(tensor_key(places[i], field));
      if (part.sizes() != parameter.sizes() || !part.is_floating_point()) {
        refuse("is damaged: a tensor of the state of " + name + " has another shape or dtype");
      }
      parts.push_back(part.reshape(-1));
    }
    return torch::cat(parts)
        .narrow(0, bucket.shard_begin(), bucket.shard().numel())
        .to(bucket.shard().options())
        .clone();
  }

  template <class Value>
  [[nodiscard]] Value value(const std::string& name) {
    c10::IValue found;
    if (!archive_.try_read(name, found)) refuse("holds no " + name);
    return found.to<Value>();
  }
  [[nodiscard]] torch::Tensor tensor(const std::string& name) {
    torch::Tensor found;
    if (!archive_.try_read(name, found)) refuse("holds no " + name);
    return found;
  }

  InputArchive& archive_;
  const Optimizer& optimizer_;
  std::unordered_map<std::string, std::int64_t> places_;  ///< of the parameters, by name
};

void load(const std::deque<ShardBucket>& buckets, Optimizer& optimizer, InputArchive& archive) {
  SavedState saved(archive, optimizer);
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options;
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    options.push_back(saved.options(group));
  }
  std::size_t parameters = 0;
  std::vector<std::unique_ptr<torch::optim::OptimizerParamState>> states;
  for (const ShardBucket& bucket : buckets) {
    states.push_back(saved.state(bucket));
    parameters += bucket.parameters().size();
  }
  if (parameters != saved.parameters()) {
    refuse(fmt::format("holds {} parameters, not {}", saved.parameters(), parameters));
  }
  // From here on nothing fails.
  for (std::size_t group = 0; group < options.size(); ++group) {
    optimizer.param_groups()[group].set_options(std::move(options[group]));
  }
  optimizer.state().clear();
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (states[i]) {
      optimizer.state()[buckets[i].shard().unsafeGetTensorImpl()] = std::move(states[i]);
    }
  }
}

}  // namespace

void save_sharded_state(Context& context, std::int32_t process_set,
                        const std::deque<ShardBucket>& buckets, const Optimizer& optimizer,
                        torch::serialize::OutputArchive& archive) {
  const torch::NoGradGuard no_grad;
  auto& readable = const_cast<Optimizer&>(optimizer);  // NOLINT: fields are pointers
  const bool writes = context.ranks_of(process_set).front() == context.rank();
  std::int64_t place = 0;
  for (const ShardBucket& bucket : buckets) {
    const auto state = readable.state().find(bucket.shard().unsafeGetTensorImpl());
    const StateFields fields =
        state == readable.state().end() ? StateFields() : state_fields(optimizer, *state->second);
    std::vector<torch::Tensor> whole;
    for (const torch::Tensor* tensor : fields.tensors) {
      whole.push_back(tensor->defined() ? allgather(context, *tensor, {.process_set = process_set})
                                        : torch::Tensor());
    }
    if (!writes) continue;
    for (std::size_t i = 0; i < bucket.parameters().size(); ++i, ++place) {
      const auto& [name, parameter] = bucket.parameters()[i];
      archive.write(key(place, "name"), c10::IValue(name));
      archive.write(key(place, "shape"), c10::IValue(parameter.sizes()));
      archive.write(key(place, "group"), c10::IValue(static_cast<std::int64_t>(bucket.group())));
      archive.write(key(place, "numbers"), numbers_of(fields));
      for (std::size_t field = 0; field < whole.size(); ++field) {
        if (!whole[field].defined()) continue;
        archive.write(tensor_key(place, field),
                      whole[field]
                          .narrow(0, bucket.offset_of(i), parameter.numel())
                          .view(parameter.sizes())
                          .clone());
      }
    }
  }
  if (!writes) return;
  archive.write(kFormatKey, c10::IValue(kFormat));
  archive.write(kOptimizerKey, c10::IValue(optimizer_name(optimizer)));
  archive.write(kCountKey, c10::IValue(place));
  archive.write(kGroupsKey, c10::IValue(std::ssize(readable.param_groups())));
  for (std::size_t group = 0; group < readable.param_groups().size(); ++group) {
    archive.write(options_key(group),
                  numbers_of(option_fields(optimizer, readable.param_groups()[group].options())));
  }
}

void load_sharded_state(const std::deque<ShardBucket>& buckets, Optimizer& optimizer,
                        InputArchive& archive) {
  const torch::NoGradGuard no_grad;
  try {
    load(buckets, optimizer, archive);
  } catch (const c10::Error& error) {
    refuse(fmt::format("is damaged: {}", error.what_without_backtrace()));
  }
}

}  // namespace hvd
