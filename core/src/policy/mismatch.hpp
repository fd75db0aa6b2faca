// Describes in a sentence how ranks disagree on an operation, and which rank asked for what.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/core/request.hpp>

namespace hvd::detail {

/// `requests[i]` came from each of `ranks[i]`. Returns nothing when they agree.
[[nodiscard]] std::optional<std::string> describe_mismatch(std::span<const Request> requests,
                                                           std::span<const std::vector<int>> ranks);

/// Describes a `request` that is a member of `group` on the ranks `with` and not on those
/// `without`.
[[nodiscard]] std::string describe_group_mismatch(const Request& request, std::string_view group,
                                                  std::span<const int> with,
                                                  std::span<const int> without);

}  // namespace hvd::detail
