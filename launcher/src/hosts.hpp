// Host lists as users type them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

struct HostSpec {
  std::string name;    ///< RFC 1123 name, IPv4 or (without brackets) IPv6 address
  int slots = 1;       ///< ranks it takes
  std::string user{};  ///< to log in as; empty: as ssh's configuration says

  friend bool operator==(const HostSpec&, const HostSpec&) = default;
};

/// "a,b:2,[::1]:4,user@c" in the order typed; the slots of a host named twice are summed. Throws
/// LaunchError (usage) quoting the part that is no host.
[[nodiscard]] std::vector<HostSpec> parse_hosts(std::string_view text);

/// The text of a hostfile: a line per host, "host", "host:n" or "host slots=n", comments after '#',
/// blank lines. Throws LaunchError (usage) with `name` and the number of the line.
[[nodiscard]] std::vector<HostSpec> parse_hostfile(std::string_view text, const std::string& name);

/// As `parse_hostfile`, of a file of at most 16 MiB.
[[nodiscard]] std::vector<HostSpec> read_hostfile(const std::string& path);

/// Letters, digits and inner hyphens in labels of 1 to 63, 253 in all; never starts with '-'.
[[nodiscard]] bool is_host_name(std::string_view name) noexcept;

/// Letters, digits, '_', '.' and '-', not first, up to 32.
[[nodiscard]] bool is_user_name(std::string_view name) noexcept;

/// Whether the two spellings name one host for sure: names do not depend on case.
[[nodiscard]] bool same_name(std::string_view a, std::string_view b) noexcept;

}  // namespace hvd::launcher
