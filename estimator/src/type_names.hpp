// Types of tensors by name, as files have them.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <torch/types.h>

namespace hvd {

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

/// Empty for any other.
[[nodiscard]] inline std::string_view name_of_type(torch::Dtype type) {
  for (const auto& [known, name] : kTypeNames) {
    if (known == type) return name;
  }
  return {};
}

[[nodiscard]] inline std::optional<torch::Dtype> type_of_name(std::string_view name) {
  for (const auto& [type, known] : kTypeNames) {
    if (known == name) return type;
  }
  return std::nullopt;
}

}  // namespace hvd
