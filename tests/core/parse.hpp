// Parses an environment that is given as a map.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <hvd/core/error.hpp>

#include "config/environment.hpp"

namespace hvd::test {

using Variables = std::map<std::string, std::string, std::less<>>;

inline Config parse(const Variables& variables, const detail::Surroundings& ask = {}) {
  const detail::Lookup lookup = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  return detail::parse_config(lookup, ask);
}

/// Returns the error message for `variables`, which must be Errc::invalid_argument.
inline std::string complaint(const Variables& variables) {
  try {
    (void)parse(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

}  // namespace hvd::test
