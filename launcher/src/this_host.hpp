// Whether a host name means the machine hvdrun runs on.
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

/// As `hostname` prints it.
[[nodiscard]] std::string own_host_name();

/// CPUs this process may use, by its affinity mask and its control groups' quota; at least 1.
[[nodiscard]] int usable_cores();

/// "localhost", this host's own name (also without its domain), 127.0.0.1, ::1, or an address of
/// one of its interfaces. Resolves nothing.
[[nodiscard]] bool is_this_host(std::string_view name);

}  // namespace hvd::launcher
