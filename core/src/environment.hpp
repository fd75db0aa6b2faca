// The environment, for the rest of the room.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hvd {

/// The value of a variable, nothing when it is not set.
[[nodiscard]] std::optional<std::string> environment_variable(std::string_view name);

}  // namespace hvd
