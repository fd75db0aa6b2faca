#include "model/model_file.hpp"

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/torch/named_tensors.hpp>

#include "model/type_names.hpp"

namespace hvd::detail {

namespace {

using nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr const char* kDescription = "description";

std::string key_of(std::size_t tensor) { return fmt::format("tensor_{}", tensor); }

ordered_json read_json(torch::serialize::InputArchive& archive, const std::string& what) {
  c10::IValue text;
  if (!archive.try_read(kDescription, text) || !text.isString()) {
    throw Error(Errc::protocol, fmt::format("{} is no model of an estimator", what));
  }
  ordered_json json = ordered_json::parse(text.toStringRef(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", 0) != kFormat) {
    throw Error(Errc::protocol,
                fmt::format("{} is of another version: format {} is read", what, kFormat));
  }
  return json;
}

std::vector<torch::Dtype> types_from(const ordered_json& names, const std::string& what) {
  std::vector<torch::Dtype> types;
  for (const auto& name : names) {
    const auto type = type_of_name(name.get<std::string>());
    if (!type) {
      throw Error(Errc::protocol,
                  fmt::format("{}: unknown type '{}'", what, name.get<std::string>()));
    }
    types.push_back(*type);
  }
  return types;
}

History history_from(const ordered_json& json, const std::string& what) {
  try {
    return History::from_json(json.dump());
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", what, error.what()));
  }
}

/// Compares name, shape and type of a saved tensor with those of a tensor of the module. Returns
/// the difference in words, or an empty text.
std::string difference_of(const ordered_json& saved, const std::string& name,
                          const torch::Tensor& tensor) {
  if (saved.at("name").get<std::string>() != name) {
    return fmt::format("has '{}' where the program's has '{}'", saved.at("name").get<std::string>(),
                       name);
  }
  const auto shape = saved.at("shape").get<std::vector<std::int64_t>>();
  if (shape != tensor.sizes().vec()) {
    return fmt::format("has '{}' in shape {}, the program's has {}", name,
                       c10::str(torch::IntArrayRef(shape)), c10::str(tensor.sizes()));
  }
  const auto type = saved.at("type").get<std::string>();
  if (type != name_of_type(tensor.scalar_type())) {
    return fmt::format("has '{}' as {}, the program's has {}", name, type,
                       name_of_type(tensor.scalar_type()));
  }
  return {};
}

}  // namespace

void write_model(torch::serialize::OutputArchive& archive, const torch::nn::Module& module,
                 const ModelDescription& description, const ordered_json& more) {
  ordered_json tensors = ordered_json::array();
  std::size_t count = 0;
  for (const auto& [name, tensor] : NamedTensors::of(module).items()) {
    tensors.push_back({{"name", name},
                       {"shape", tensor.sizes().vec()},
                       {"type", name_of_type(tensor.scalar_type())}});
    archive.write(key_of(count++), tensor.detach().to(torch::kCPU).contiguous());
  }
  const ordered_json json{{"format", kFormat},
                          {"run_id", description.run_id},
                          {"feature_cols", description.feature_cols},
                          {"label_cols", description.label_cols},
                          {"output_cols", description.output_cols},
                          {"input_shapes", description.input_shapes},
                          {"feature_types", names_of_types(description.feature_types)},
                          {"output_shapes", description.output_shapes},
                          {"history", ordered_json::parse(description.history.to_json())},
                          {"tensors", tensors},
                          {"more", more}};
  archive.write(kDescription, c10::IValue(json.dump()));
}

ModelFile read_description(torch::serialize::InputArchive& archive, const std::string& what) {
  const ordered_json json = read_json(archive, what);
  try {
    ModelFile file;
    ModelDescription& description = file.description;
    json.at("run_id").get_to(description.run_id);
    json.at("feature_cols").get_to(description.feature_cols);
    json.at("label_cols").get_to(description.label_cols);
    json.at("output_cols").get_to(description.output_cols);
    json.at("input_shapes").get_to(description.input_shapes);
    json.at("output_shapes").get_to(description.output_shapes);
    description.feature_types = types_from(json.at("feature_types"), what);
    description.history = history_from(json.at("history"), what);
    file.more = json.at("more");
    return file;
  } catch (const nlohmann::json::exception& error) {
    throw Error(Errc::protocol, fmt::format("{}: {}", what, error.what()));
  }
}

void read_tensors(torch::serialize::InputArchive& archive, torch::nn::Module& module,
                  const std::string& what) {
  const ordered_json json = read_json(archive, what);
  const NamedTensors own = NamedTensors::of(module);
  std::vector<torch::Tensor> values(own.size());
  try {
    const ordered_json& saved = json.at("tensors");
    for (std::size_t i = 0; i < own.size() && i < saved.size(); ++i) {
      const auto& [name, tensor] = own.items()[i];
      const std::string difference = difference_of(saved[i], name, tensor);
      if (!difference.empty()) {
        throw Error(Errc::invalid_argument, fmt::format("model: {} {}", what, difference));
      }
      archive.read(key_of(i), values[i]);
      if (values[i].sizes() != tensor.sizes()) {
        throw Error(Errc::protocol, fmt::format("{}: '{}' is not as it says itself", what, name));
      }
    }
    if (saved.size() != own.size()) {
      throw Error(Errc::invalid_argument,
                  fmt::format("model: {} has {} parameters and buffers, the program's has {}", what,
                              saved.size(), own.size()));
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(Errc::protocol, fmt::format("{}: {}", what, error.what()));
  } catch (const c10::Error& error) {
    throw Error(Errc::protocol, fmt::format("{}: {}", what, error.what_without_backtrace()));
  }
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < own.size(); ++i) {
    torch::Tensor tensor = own.items()[i].second;
    tensor.copy_(values[i]);
  }
}

}  // namespace hvd::detail
