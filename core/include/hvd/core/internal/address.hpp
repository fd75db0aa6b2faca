// Holds the address of a server, which is written as "unix:@name" (abstract), "unix:/path",
// "tcp:host:port" or "tcp:[v6]:port".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hvd {

/// Tells whether `host` is a name that may be handed to the resolver or to ssh, or an IPv4 address,
/// whose alphabet is the same: RFC 1123's letters, digits and inner hyphens, and underscores, which
/// container platforms use in the names of services. No label begins with a hyphen, so that no host
/// name can be taken for an option.
[[nodiscard]] bool is_host_name(std::string_view host) noexcept;

/// Tells whether `host` is a numeric IPv6 address, without brackets.
[[nodiscard]] bool is_ipv6_address(const std::string& host) noexcept;

/// Tells whether only processes of one network namespace can share the address.
[[nodiscard]] bool is_loopback(std::string_view host) noexcept;

struct Address {
  enum class Kind : std::uint8_t { unix_socket, tcp };
  Kind kind = Kind::tcp;
  std::string host;  ///< tcp: a name or address; unix: "@name" or a path
  std::uint16_t port = 0;

  /// Throws Errc::invalid_argument quoting the text.
  [[nodiscard]] static Address parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;
};

}  // namespace hvd
