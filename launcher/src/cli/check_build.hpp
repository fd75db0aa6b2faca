// Implements --check-build, which prints what this build of hvd contains.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

/// Reads the record that the build installs beside this program. Throws LaunchError (70).
[[nodiscard]] std::string read_build_record();

/// Formats `record`, a JSON text, as a table. Throws LaunchError (70) when it is malformed.
[[nodiscard]] std::string build_table(std::string_view record);

}  // namespace hvd::launcher
