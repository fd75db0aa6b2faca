// Reads the environment variables of the estimator. No other file of the estimator reads any.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include <unistd.h>

namespace hvd::detail {

/// Returns `HVD_ESTIMATOR`, hvd_spark's request in JSON.
[[nodiscard]] inline std::optional<std::string> estimator_request_text() {
  const char* const text = std::getenv("HVD_ESTIMATOR");
  if (text == nullptr) return std::nullopt;
  return text;
}

/// Returns whether standard output reaches a terminal: directly, or through a launcher that says so
/// (`HVD_TERMINAL`).
[[nodiscard]] inline bool on_terminal() {
  return ::isatty(STDOUT_FILENO) == 1 || std::getenv("HVD_TERMINAL") != nullptr;
}

}  // namespace hvd::detail
