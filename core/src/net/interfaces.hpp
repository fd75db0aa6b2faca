// Chooses the address at which ranks on other machines reach this one, and tells whether a host's
// name means this machine.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::net {

/// Holds one address of one interface that is up.
struct InterfaceAddress {
  std::string interface;
  std::string address;  ///< numeric IPv4 or IPv6
  bool loopback = false;
};

/// Returns the addresses in the system's order, without IPv6 link-local ones, which need a scope.
/// Throws Errc::resource.
[[nodiscard]] std::vector<InterfaceAddress> list_interfaces();

/// `wanted` is a comma-separated list of interface names and CIDR blocks, of which the first that
/// matches an address decides. When it is empty, the choice is loopback if `one_host`, and
/// otherwise the first IPv4, or else IPv6, address that is neither loopback nor that of a container
/// or virtual-machine bridge. Throws Errc::invalid_argument naming `wanted` and what there is.
[[nodiscard]] std::string choose_address(std::span<const InterfaceAddress> addresses,
                                         std::string_view wanted, bool one_host);

/// Returns the address to listen on, as in address.hpp with a free port, by the rules of
/// `choose_address`.
[[nodiscard]] std::string listen_address(std::string_view wanted, bool one_host);

/// Tells whether the numeric `address` lies in the block `cidr`, as in "10.0.0.0/8" or "fd00::/8".
/// Throws Errc::invalid_argument when `cidr` is no block.
[[nodiscard]] bool in_block(const std::string& address, std::string_view cidr);

/// Returns the numeric addresses of `host`, in the resolver's order, or none when the resolver does
/// not know the name. Blocks as long as the system's resolver does.
[[nodiscard]] std::vector<std::string> resolve(const std::string& host);

/// Tells whether an address of `host` belongs to this machine, loopback included.
[[nodiscard]] bool is_this_machine(const std::string& host);

/// Returns the address at which a server has to listen so that other machines find it under `host`:
/// an address of this machine that the name resolves to, or `host` itself when it is a loopback
/// address. Returns nothing when the name resolves here only to the loopback (as after Debian's
/// installer) or to a translated address.
[[nodiscard]] std::optional<std::string> own_address_of(const std::string& host);

}  // namespace hvd::net
