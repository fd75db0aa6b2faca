#include "sharded_state.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/torch/collectives.hpp>

#include "optimizer_fields.hpp"
#include "optimizer_state_fields.hpp"

namespace hvd {
namespace {

// The archive's entries. Keys hold no dots: LibTorch would take them for modules.
constexpr std::int64_t kFormat = 1;
const std::string kFormatKey = "format";
const std::string kOptimizerKey = "optimizer";
const std::string kCountKey = "parameters";
const std::string kOptionsKey = "options";

std::string key(std::int64_t parameter, const char* what) {
  return fmt::format("parameter_{}_{}", parameter, what);
}
std::string tensor_key(std::int64_t parameter, std::size_t field) {
  return fmt::format("parameter_{}_tensor_{}", parameter, field);
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Errc::invalid_argument, "ShardedOptimizer: the archive " + message);
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

/// The reverse; returns which tensors there are.
std::vector<bool> set_numbers(const StateFields& fields, const torch::Tensor& numbers) {
  const double* next = numbers.const_data_ptr<double>();
  for (double* value : fields.doubles) *value = *next++;
  for (std::int64_t* value : fields.integers) *value = static_cast<std::int64_t>(*next++);
  for (bool* value : fields.flags) *value = *next++ != 0;
  std::vector<bool> present;
  for (std::size_t i = 0; i < fields.tensors.size(); ++i) present.push_back(*next++ != 0);
  return present;
}

std::int64_t count_of(const StateFields& fields) {
  return std::ssize(fields.doubles) + std::ssize(fields.integers) + std::ssize(fields.flags) +
         std::ssize(fields.tensors);
}

template <class Value>
Value read(torch::serialize::InputArchive& archive, const std::string& name) {
  c10::IValue value;
  if (!archive.try_read(name, value)) refuse("holds no " + name);
  return value.to<Value>();
}

torch::Tensor read_tensor(torch::serialize::InputArchive& archive, const std::string& name) {
  torch::Tensor tensor;
  if (!archive.try_read(name, tensor)) refuse("holds no " + name);
  return tensor;
}

std::string optimizer_name(const torch::optim::Optimizer& optimizer) {
  const std::int64_t code = optimizer_code(optimizer);
  return code < 0 ? "other" : std::string(kOptimizerNames[code]);
}

/// The parameters' places in the archive, by name.
std::unordered_map<std::string, std::int64_t> places(torch::serialize::InputArchive& archive) {
  std::unordered_map<std::string, std::int64_t> by_name;
  const auto count = read<std::int64_t>(archive, kCountKey);
  for (std::int64_t i = 0; i < count; ++i) {
    by_name.emplace(read<std::string>(archive, key(i, "name")), i);
  }
  return by_name;
}

/// Everything that loading relies on.
void check(const std::deque<ShardBucket>& buckets, torch::optim::Optimizer& optimizer,
           torch::serialize::InputArchive& archive) {
  if (const auto format = read<std::int64_t>(archive, kFormatKey); format != kFormat) {
    refuse(fmt::format("has format {}, not {}", format, kFormat));
  }
  const auto saved = read<std::string>(archive, kOptimizerKey);
  if (saved != optimizer_name(optimizer)) {
    refuse(fmt::format("is of {}, not {}", saved, optimizer_name(optimizer)));
  }
  const auto by_name = places(archive);
  std::size_t known = 0;
  for (const ShardBucket& bucket : buckets) {
    for (const auto& [name, parameter] : bucket.parameters()) {
      const auto at = by_name.find(name);
      if (at == by_name.end()) refuse("holds no parameter " + name);
      ++known;
      const auto shape = read<std::vector<std::int64_t>>(archive, key(at->second, "shape"));
      if (torch::IntArrayRef(shape) != parameter.sizes()) {
        refuse(fmt::format("has another shape for {}", name));
      }
    }
  }
  if (known != by_name.size()) refuse(fmt::format("holds {} parameters", by_name.size()));
}

}  // namespace

void save_sharded_state(Context& context, std::int32_t process_set,
                        const std::deque<ShardBucket>& buckets,
                        const torch::optim::Optimizer& optimizer,
                        torch::serialize::OutputArchive& archive) {
  const torch::NoGradGuard no_grad;
  auto& readable = const_cast<torch::optim::Optimizer&>(optimizer);  // NOLINT: fields are pointers
  const bool writes = context.ranks_of(process_set).front() == context.rank();
  std::int64_t place = 0;
  for (const ShardBucket& bucket : buckets) {
    const bool has = has_state(optimizer, bucket.shard());
    const StateFields fields = has ? state_fields(readable, bucket.shard()) : StateFields();
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
  archive.write(kOptionsKey, numbers_of(option_fields(readable)));
}

void load_sharded_state(const std::deque<ShardBucket>& buckets, torch::optim::Optimizer& optimizer,
                        torch::serialize::InputArchive& archive) {
  const torch::NoGradGuard no_grad;
  check(buckets, optimizer, archive);
  const auto by_name = places(archive);
  const StateFields options = option_fields(optimizer);
  const torch::Tensor saved_options = read_tensor(archive, kOptionsKey);
  if (saved_options.numel() != count_of(options)) refuse("has other options");
  set_numbers(options, saved_options);
  for (const ShardBucket& bucket : buckets) {
    const std::int64_t first = by_name.at(bucket.parameters().front().first);
    const torch::Tensor numbers = read_tensor(archive, key(first, "numbers"));
    if (numbers.numel() == 0) continue;  // saved before the first step
    const StateFields fields = state_fields(optimizer, bucket.shard());
    if (numbers.numel() != count_of(fields)) refuse("has another state");
    const std::vector<bool> present = set_numbers(fields, numbers);
    for (std::size_t field = 0; field < fields.tensors.size(); ++field) {
      if (!present[field]) {
        fields.tensors[field]->reset();
        continue;
      }
      std::vector<torch::Tensor> parts;
      for (const auto& [name, parameter] : bucket.parameters()) {
        parts.push_back(read_tensor(archive, tensor_key(by_name.at(name), field)).reshape(-1));
      }
      *fields.tensors[field] = torch::cat(parts)
                                   .narrow(0, bucket.shard_begin(), bucket.shard().numel())
                                   .to(bucket.shard().options())
                                   .clone();
    }
  }
}

}  // namespace hvd
