// Describes the machine and the shell in which hvdrun was started.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

/// Returns the environment with which this process was started, as entries "NAME=value". No other
/// function of the launcher reads it.
[[nodiscard]] std::vector<std::string> own_environment();

/// Returns the directory in which hvdrun was started. This is PWD from the environment `own` if it
/// leads to the working directory, because other hosts may know it only under that name (/home/me,
/// mounted here as /export/home/me), and otherwise the kernel's name for it. Throws LaunchError
/// (71) when the directory no longer exists.
[[nodiscard]] std::string working_directory(const std::vector<std::string>& own);

/// Returns the name that `hostname` prints.
[[nodiscard]] std::string own_host_name();

/// Returns true for "localhost", this host's own name (also without its domain), 127.0.0.1, ::1,
/// and the addresses of its interfaces. Does not resolve names.
[[nodiscard]] bool is_this_host(std::string_view name);

}  // namespace hvd::launcher
