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

/// To look one up without a copy of the name.
using OperationKeyView = std::pair<std::int32_t, std::string_view>;

[[nodiscard]] inline OperationKeyView view_of(const Request& request) {
  return {request.process_set, request.name};
}

struct OperationKeyHash {
  using is_transparent = void;
  std::size_t operator()(const OperationKeyView& key) const noexcept {
    return std::hash<std::string_view>()(key.second) ^ static_cast<std::size_t>(key.first);
  }
  std::size_t operator()(const OperationKey& key) const noexcept {
    return operator()(OperationKeyView(key));
  }
};

struct OperationKeyEqual {
  using is_transparent = void;
  bool operator()(const OperationKeyView& a, const OperationKeyView& b) const noexcept {
    return a == b;
  }
};

/// For what nobody goes through in order.
template <class Value>
using OperationMap = std::unordered_map<OperationKey, Value, OperationKeyHash, OperationKeyEqual>;

}  // namespace hvd
