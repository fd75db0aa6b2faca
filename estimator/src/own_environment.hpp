// The environment: own_environment.cpp is the one place of the room that reads it.
#pragma once

#include <optional>
#include <string>

namespace hvd {

/// `HVD_ESTIMATOR`: what hvd_spark asks of a program, in JSON.
[[nodiscard]] std::optional<std::string> estimator_request_text();

/// Whether what is written to stdout ends on a terminal: it does itself, or it is a launcher's pipe
/// and the launcher says so (`HVD_TERMINAL`).
[[nodiscard]] bool on_terminal();

}  // namespace hvd
