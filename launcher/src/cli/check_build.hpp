// --check-build: what this build of hvd contains.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

/// The record that the build installs beside this program. Throws LaunchError (70).
[[nodiscard]] std::string read_build_record();

/// A table for people. `record` is the JSON text; throws LaunchError (70) when it is none.
[[nodiscard]] std::string build_table(std::string_view record);

}  // namespace hvd::launcher
