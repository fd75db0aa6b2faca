// Do the ranks agree on an operation? If not, a sentence that says which rank asked what.
#pragma once

#include <optional>
#include <span>
#include <string>

#include <hvd/core/request.hpp>

namespace hvd {

/// `requests[i]` came from `ranks[i]`. Empty when they agree.
[[nodiscard]] std::optional<std::string> describe_mismatch(std::span<const Request> requests,
                                                           std::span<const int> ranks);

}  // namespace hvd
