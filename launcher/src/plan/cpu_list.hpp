// Writes and reads sets of CPUs in the kernel's form.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

/// CPUs by the numbers of the operating system, ascending.
using Cpus = std::vector<int>;

/// Returns a text such as "0-3,8".
[[nodiscard]] std::string cpu_list(const Cpus& cpus);

/// Reads such a text, possibly with a newline at the end. Returns nothing if it is something else,
/// if its numbers do not ascend, or if one is above 65,535.
[[nodiscard]] std::optional<Cpus> parse_cpu_list(std::string_view text);

}  // namespace hvd::launcher
