// What operations match by.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <hvd/core/request.hpp>

namespace hvd {

/// Process set and name.
using OperationKey = std::pair<std::int32_t, std::string>;

[[nodiscard]] inline OperationKey key_of(const Request& request) {
  return {request.process_set, request.name};
}

}  // namespace hvd
