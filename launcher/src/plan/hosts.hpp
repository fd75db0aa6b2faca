// Parses host lists as users type them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <hvd/core/internal/address.hpp>

namespace hvd::launcher {

struct HostSpec {
  std::string name;    ///< as is_host_name accepts, or an IPv4 or IPv6 address without []
  int slots = 1;       ///< the number of ranks it can take
  std::string user{};  ///< login name; empty: ssh's configuration decides

  friend bool operator==(const HostSpec&, const HostSpec&) = default;
};

/// Parses "a,b:2,[::1]:4,user@c" and keeps the order. The slots of a host that is named twice are
/// added. Throws LaunchError (usage) quoting the part that is not a host.
[[nodiscard]] std::vector<HostSpec> parse_hosts(std::string_view text);

/// Parses the text of a hostfile with one host per line: "host", "host:n" or "host slots=n", with
/// comments after '#' and blank lines. Throws LaunchError (usage) with `name` and the number of the
/// line.
[[nodiscard]] std::vector<HostSpec> parse_hostfile(std::string_view text, const std::string& name);

/// Parses what a discovery script prints: a line "host" or "host:n" for each host, in the forms of
/// `parse_hosts`, and blank lines. There may be no host. A host without a number has `slots`.
/// Throws LaunchError (usage) quoting the line.
[[nodiscard]] std::vector<HostSpec> parse_discovered_hosts(std::string_view text, int slots);

/// Parses a hostfile of at most 16 MiB as `parse_hostfile` does.
[[nodiscard]] std::vector<HostSpec> read_hostfile(const std::string& path);

/// Numbers the hosts of an elastic job in the order in which they are first listed. A host is known
/// by its name and user.
class KnownHosts {
 public:
  /// Takes a list of hosts. Returns the slots of each host that was ever listed; 0: not in the
  /// list.
  [[nodiscard]] std::vector<int> list(const std::vector<HostSpec>& listed);
  /// Returns all of them, with the slots of the last list in which they were.
  [[nodiscard]] const std::vector<HostSpec>& all() const noexcept { return hosts_; }

 private:
  std::vector<HostSpec> hosts_;
};

/// Returns whether the name has 1 to 32 letters, digits, '_', '.' and '-', and does not begin with
/// '.' or '-'.
[[nodiscard]] bool is_user_name(std::string_view name) noexcept;

/// Returns whether the two names certainly mean the same host. Case does not matter.
[[nodiscard]] bool same_name(std::string_view a, std::string_view b) noexcept;

}  // namespace hvd::launcher
