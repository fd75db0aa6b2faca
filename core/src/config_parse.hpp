// The environment contract as a function of any name → value lookup.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <hvd/core/config.hpp>

namespace hvd {

/// The value of a variable, nothing when it is not set.
using Lookup = std::function<std::optional<std::string>(std::string_view name)>;

/// What `Config::from_environment` does, without the environment. Throws Errc::invalid_argument
/// naming the variable and its value.
[[nodiscard]] Config parse_config(const Lookup& lookup);

}  // namespace hvd
