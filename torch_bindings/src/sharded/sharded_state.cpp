#include "sharded/sharded_state.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/torch/collectives.hpp>

#include "sharded/state_fields.hpp"
#include "state/optimizer_fields.hpp"

namespace hvd::detail {
namespace {

using torch::optim::Optimizer;
using torch::serialize::InputArchive;

// The keys of the archive contain no dots, because LibTorch takes a dot for a submodule.
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

std::string optimizer_name(const Optimizer& optimizer) {
  const std::int64_t code = optimizer_code(optimizer);
  return code < 0 ? "other" : std::string(kOptimizerNames[code]);
}

/// Reads and checks an archive for one optimizer, which it does not change.
class SavedState {
 public:
  SavedState(InputArchive& archive, const Optimizer& optimizer)
      : archive_(archive), optimizer_(optimizer) {
    if (const auto format = value<std::int64_t>(kFormatKey); format != kFormat) {
      refuse_state(fmt::format("has format {}, not {}", format, kFormat));
    }
    const auto saved = value<std::string>(kOptimizerKey);
    if (saved != optimizer_name(optimizer)) {
      refuse_state(fmt::format("is of {}, not {}", saved, optimizer_name(optimizer)));
    }
    const auto count = value<std::int64_t>(kCountKey);
    for (std::int64_t i = 0; i < count; ++i) {
      if (!numbers_.emplace(value<std::string>(key(i, "name")), i).second) {
        refuse_state("is damaged: it holds a parameter twice");
      }
    }
    const auto groups = value<std::int64_t>(kGroupsKey);
    if (groups != std::ssize(optimizer.param_groups())) {
      refuse_state(
          fmt::format("has {} parameter groups, not {}", groups, optimizer.param_groups().size()));
    }
  }

  [[nodiscard]] std::size_t parameters() const { return numbers_.size(); }

  [[nodiscard]] std::unique_ptr<torch::optim::OptimizerOptions> options(std::size_t group) {
    auto options = optimizer_.param_groups()[group].options().clone();
    set_numbers(option_fields(optimizer_, *options), tensor(options_key(group)));
    return options;
  }

  /// Returns the state of a part of the bucket, or null when none was saved.
  [[nodiscard]] std::unique_ptr<torch::optim::OptimizerParamState> state(const ShardBucket& bucket,
                                                                         const ShardPart& part) {
    std::vector<std::int64_t> saved;
    for (const auto& [name, parameter] : bucket.parameters()) {
      saved.push_back(number_of(name, parameter, bucket.group()));
    }
    const torch::Tensor numbers = tensor(key(saved.front(), "numbers"));
    for (const std::int64_t number : saved) {
      if (number == saved.front()) continue;
      if (!torch::equal(tensor(key(number, "numbers")), numbers)) {
        refuse_state(fmt::format(
            "has made other steps with {} than with {}, which are in one bucket: "
            "choose other bucket_bytes",
            bucket.parameters().front().first, value<std::string>(key(number, "name"))));
      }
    }
    // Only Adagrad has its state from its construction on.
    if (numbers.numel() == 0 && optimizer_name(optimizer_) != "Adagrad") return nullptr;
    auto state = make_state(optimizer_);
    const StateFields fields = state_fields(optimizer_, *state);
    const std::vector<bool> present = set_numbers(fields, numbers);
    for (std::size_t field = 0; field < present.size(); ++field) {
      if (present[field]) *fields.tensors[field] = part_of(bucket, part, saved, field);
    }
    return state;
  }

 private:
  [[nodiscard]] std::int64_t number_of(const std::string& name, const torch::Tensor& parameter,
                                       std::size_t group) {
    const auto at = numbers_.find(name);
    if (at == numbers_.end()) refuse_state("holds no parameter " + name);
    if (torch::IntArrayRef(value<std::vector<std::int64_t>>(key(at->second, "shape"))) !=
        parameter.sizes()) {
      refuse_state("has another shape for " + name);
    }
    const auto saved = value<std::int64_t>(key(at->second, "group"));
    if (saved != static_cast<std::int64_t>(group)) {
      refuse_state(fmt::format("has {} in group {}, not {}", name, saved, group));
    }
    return at->second;
  }

  [[nodiscard]] torch::Tensor part_of(const ShardBucket& bucket, const ShardPart& part,
                                      const std::vector<std::int64_t>& saved, std::size_t field) {
    std::vector<torch::Tensor> whole;
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const auto& [name, parameter] = bucket.parameters()[i];
      torch::Tensor one = tensor(tensor_key(saved[i], field));
      const bool fits = one.is_complex() ? parameter.is_complex() : one.is_floating_point();
      if (one.sizes() != parameter.sizes() || !fits) {
        refuse_state("is damaged: a tensor of the state of " + name +
                     " has another shape or dtype");
      }
      whole.push_back(one.reshape(-1));
    }
    return torch::cat(whole)
        .narrow(0, part.begin, part.values.numel())
        .to(part.values.options())
        .clone();
  }

  template <class Value>
  [[nodiscard]] Value value(const std::string& name) {
    c10::IValue found;
    if (!archive_.try_read(name, found)) refuse_state("holds no " + name);
    return found.to<Value>();
  }
  [[nodiscard]] torch::Tensor tensor(const std::string& name) {
    torch::Tensor found;
    if (!archive_.try_read(name, found)) refuse_state("holds no " + name);
    return found;
  }

  InputArchive& archive_;
  const Optimizer& optimizer_;
  std::unordered_map<std::string, std::int64_t>
      numbers_;  ///< the number of each parameter, by name
};

void load(const std::deque<ShardBucket>& buckets, Optimizer& optimizer, InputArchive& archive) {
  SavedState saved(archive, optimizer);
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options;
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    options.push_back(saved.options(group));
  }
  std::size_t parameters = 0;
  std::vector<std::pair<const ShardPart*, std::unique_ptr<torch::optim::OptimizerParamState>>>
      states;
  for (const ShardBucket& bucket : buckets) {
    for (const ShardPart& part : bucket.parts()) {
      states.emplace_back(&part, saved.state(bucket, part));
    }
    parameters += bucket.parameters().size();
  }
  if (parameters != saved.parameters()) {
    refuse_state(fmt::format("holds {} parameters, not {}", saved.parameters(), parameters));
  }
  // Nothing below can fail.
  for (std::size_t group = 0; group < options.size(); ++group) {
    optimizer.param_groups()[group].set_options(std::move(options[group]));
  }
  optimizer.state().clear();
  for (auto& [part, state] : states) {
    if (state) optimizer.state()[part->values.unsafeGetTensorImpl()] = std::move(state);
  }
}

}  // namespace

void save_sharded_state(Context& context, std::int32_t process_set,
                        const std::deque<ShardBucket>& buckets, const Optimizer& optimizer,
                        torch::serialize::OutputArchive& archive, bool on_all_ranks) {
  const torch::NoGradGuard no_grad;
  auto& readable = const_cast<Optimizer&>(optimizer);  // NOLINT: fields are pointers
  const bool writes = on_all_ranks || context.ranks_of(process_set).front() == context.rank();
  std::int64_t number = 0;
  for (const ShardBucket& bucket : buckets) {
    const auto state = readable.state().find(bucket.shard().unsafeGetTensorImpl());
    const StateFields fields =
        state == readable.state().end() ? StateFields() : state_fields(optimizer, *state->second);
    std::vector<torch::Tensor> whole;
    for (const torch::Tensor* tensor : fields.tensors) {
      whole.push_back(tensor->defined()
                          ? allgather(*tensor, {.process_set = process_set, .context = &context})
                          : torch::Tensor());
    }
    if (!writes) continue;
    for (std::size_t i = 0; i < bucket.parameters().size(); ++i, ++number) {
      const auto& [name, parameter] = bucket.parameters()[i];
      archive.write(key(number, "name"), c10::IValue(name));
      archive.write(key(number, "shape"), c10::IValue(parameter.sizes()));
      archive.write(key(number, "group"), c10::IValue(static_cast<std::int64_t>(bucket.group())));
      archive.write(key(number, "numbers"), numbers_of(fields));
      for (std::size_t field = 0; field < whole.size(); ++field) {
        if (!whole[field].defined()) continue;
        archive.write(tensor_key(number, field),
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
  archive.write(kCountKey, c10::IValue(number));
  archive.write(kGroupsKey, c10::IValue(std::ssize(readable.param_groups())));
  for (std::size_t group = 0; group < readable.param_groups().size(); ++group) {
    archive.write(options_key(group),
                  numbers_of(option_fields(optimizer, readable.param_groups()[group].options())));
  }
}

void begin_state(Optimizer& optimizer) {
  optimizer.state().clear();
  if (!dynamic_cast<torch::optim::Adagrad*>(&optimizer)) return;  // the first step makes it
  for (auto& group : optimizer.param_groups()) {
    const auto& options = static_cast<torch::optim::AdagradOptions&>(group.options());
    for (const torch::Tensor& parameter : group.params()) {
      auto state = std::make_unique<torch::optim::AdagradParamState>();
      state->step(0);
      state->sum(torch::full_like(parameter.detach(), options.initial_accumulator_value()));
      optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
    }
  }
}

void load_sharded_state(const std::deque<ShardBucket>& buckets, Optimizer& optimizer,
                        InputArchive& archive) {
  const torch::NoGradGuard no_grad;
  try {
    load(buckets, optimizer, archive);
  } catch (const c10::Error& error) {
    refuse_state(fmt::format("is damaged: {}", error.what_without_backtrace()));
  }
}

}  // namespace hvd::detail
