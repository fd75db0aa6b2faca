// Which address of this machine `HVD_NETWORK_INTERFACES` means, for a launcher that has to agree
// with the ranks it starts.
#pragma once

#include <string>
#include <string_view>

namespace hvd {

struct ReachableAddress {
  std::string interface;  ///< as in "eth0"
  std::string address;    ///< numeric IPv4 or IPv6
};

/// Returns the address at which the ranks of other machines reach this one;
/// docs/internals/protocol.md has the rules. `wanted` as in `Config::interfaces`. Throws
/// Errc::invalid_argument listing what there is when nothing fits.
[[nodiscard]] ReachableAddress reachable_address(std::string_view wanted);

}  // namespace hvd
