// What operations match by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <hvd/core/request.hpp>

namespace hvd {

/// Process set and name.
using OperationKey = std::pair<std::int32_t, std::string>;

[[nodiscard]] inline OperationKey key_of(const Request& request) {
  return {request.process_set, request.name};
}

/// To look one up without a copy of the name, which is elsewhere, and to hash it once.
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

/// For what nobody goes through in order. The names are in what outlives their places here.
template <class Value>
using OperationMap =
    std::unordered_map<OperationKeyView, Value, OperationKeyHash, OperationKeyEqual>;

}  // namespace hvd
