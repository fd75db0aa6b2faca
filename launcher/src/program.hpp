// Finds the program of a rank the way a shell does, before anything starts.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

/// A name with a slash is taken as it is, others are looked for along `search_path` ("" means the
/// working directory, as in a shell). Throws LaunchError: 127 not found, 126 not executable.
[[nodiscard]] std::string find_program(const std::string& name, std::string_view search_path);

}  // namespace hvd::launcher
