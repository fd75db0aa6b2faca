// Which address of this machine the ranks of other machines reach.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::net {

/// One address of one interface that is up.
struct InterfaceAddress {
  std::string interface;
  std::string address;  ///< numeric IPv4 or IPv6
  bool loopback = false;
};

/// In the system's order; IPv6 link-local addresses, which need a scope, are left out.
/// Throws Errc::resource.
[[nodiscard]] std::vector<InterfaceAddress> list_interfaces();

/// `wanted` is a comma-separated list of interface names and CIDR blocks; the first entry that
/// matches an address decides. Empty: loopback when `one_host`; else the first IPv4, or failing
/// that IPv6, address that is neither loopback nor of a container or virtual-machine bridge.
/// Throws Errc::invalid_argument naming `wanted` and what there is.
[[nodiscard]] std::string choose_address(std::span<const InterfaceAddress> addresses,
                                         std::string_view wanted, bool one_host);

/// The address to listen on, as in address.hpp with a free port, by the rules of `choose_address`.
[[nodiscard]] std::string listen_address(std::string_view wanted, bool one_host);

/// True when the numeric `address` lies in the block `cidr`, as in "10.0.0.0/8" or "fd00::/8".
/// Throws Errc::invalid_argument when `cidr` is none.
[[nodiscard]] bool in_block(const std::string& address, std::string_view cidr);

}  // namespace hvd::net
