// Finds the address of this machine that `HVD_NETWORK_INTERFACES` selects, for a launcher that has
// to choose the same one as the ranks it starts.
#pragma once

#include <string>
#include <string_view>

namespace hvd {

struct ReachableAddress {
  std::string interface;  ///< as in "eth0"
  std::string address;    ///< numeric IPv4 or IPv6
};

/// Returns the address at which the ranks of other machines reach this one;
/// docs/internals/protocol.md has the rules. `wanted` is as in `Config::interfaces`. Throws
/// Errc::invalid_argument with a list of the addresses that there are when none fits.
[[nodiscard]] ReachableAddress reachable_address(std::string_view wanted);

}  // namespace hvd
