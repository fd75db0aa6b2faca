// Declares the key by which the operations of different ranks match.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <hvd/core/request.hpp>

namespace hvd::detail {

/// Holds a process set and a name.
using OperationKey = std::pair<std::int32_t, std::string>;

[[nodiscard]] inline OperationKey key_of(const Request& request) {
  return {request.process_set, request.name};
}

/// Is a key that refers to the name instead of holding it, with its hash: looking one up copies
/// nothing and hashes once.
struct OperationKeyView {
  OperationKeyView() noexcept = default;
  OperationKeyView(std::int32_t set, std::string_view operation) noexcept
      : process_set(set),
        name(operation),
        hash(std::hash<std::string_view>()(operation) ^ static_cast<std::size_t>(set)) {}
  OperationKeyView(const OperationKey& key) noexcept : OperationKeyView(key.first, key.second) {}

  std::int32_t process_set = 0;
  std::string_view name;
  std::size_t hash = 0;
};

[[nodiscard]] inline OperationKeyView view_of(const Request& request) {
  return {request.process_set, request.name};
}

struct OperationKeyHash {
  std::size_t operator()(const OperationKeyView& key) const noexcept { return key.hash; }
};

struct OperationKeyEqual {
  bool operator()(const OperationKeyView& a, const OperationKeyView& b) const noexcept {
    return a.process_set == b.process_set && a.name == b.name;
  }
};

/// Is an unordered map. Do not iterate over it where the order matters. The names outlive their
/// entries.
template <class Value>
using OperationMap =
    std::unordered_map<OperationKeyView, Value, OperationKeyHash, OperationKeyEqual>;

}  // namespace hvd::detail
