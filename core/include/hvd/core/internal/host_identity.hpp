// Tells whether two ranks share a host, from which the topology of the job follows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <hvd/core/topology.hpp>

namespace hvd {

/// Identifies the host of a rank. Ranks share a host when boot id and network namespace are equal.
/// They can then connect by abstract Unix sockets and pass descriptors.
struct HostIdentity {
  std::string hostname;
  std::string boot_id;
  std::uint64_t network_namespace = 0;  ///< inode

  /// Throws Errc::resource when /proc does not tell.
  [[nodiscard]] static HostIdentity of_this_process();
  [[nodiscard]] bool same_host(const HostIdentity& other) const noexcept {
    return boot_id == other.boot_id && network_namespace == other.network_namespace;
  }
};

/// Returns the topology as `rank` sees it; `hosts` is by rank.
[[nodiscard]] Topology make_topology(int rank, const std::vector<HostIdentity>& hosts);

}  // namespace hvd
