// Recognises whole numbers in JSON.
#pragma once

#include <cstdint>
#include <utility>

namespace hvd::detail {

/// Returns whether the JSON value is a whole number that `Integer` can hold. The JSON library would
/// convert any other number or bool to `Integer` silently.
template <class Integer, class Json>
[[nodiscard]] bool is_whole(const Json& value) {
  if (value.is_number_unsigned()) {
    return std::in_range<Integer>(value.template get<std::uint64_t>());
  }
  return value.is_number_integer() && std::in_range<Integer>(value.template get<std::int64_t>());
}

}  // namespace hvd::detail
