// Names the types of tensors in files.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/types.h>

namespace hvd::detail {

inline constexpr std::array<std::pair<torch::Dtype, std::string_view>, 10> kTypeNames = {{
    {torch::kFloat32, "float32"},
    {torch::kFloat64, "float64"},
    {torch::kFloat16, "float16"},
    {torch::kBFloat16, "bfloat16"},
    {torch::kUInt8, "uint8"},
    {torch::kInt8, "int8"},
    {torch::kInt16, "int16"},
    {torch::kInt32, "int32"},
    {torch::kInt64, "int64"},
    {torch::kBool, "bool"},
}};

/// Returns an empty string for any other type.
[[nodiscard]] inline std::string_view name_of_type(torch::Dtype type) {
  for (const auto& [known, name] : kTypeNames) {
    if (known == type) return name;
  }
  return {};
}

[[nodiscard]] inline std::vector<std::string> names_of_types(
    const std::vector<torch::Dtype>& types) {
  std::vector<std::string> names;
  for (const torch::Dtype type : types) names.emplace_back(name_of_type(type));
  return names;
}

[[nodiscard]] inline std::optional<torch::Dtype> type_of_name(std::string_view name) {
  for (const auto& [type, known] : kTypeNames) {
    if (known == name) return type;
  }
  return std::nullopt;
}

}  // namespace hvd::detail
