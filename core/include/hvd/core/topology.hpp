// Tells which rank runs on which host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

struct Topology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  ///< among the ranks of this host, in rank order
  int local_size = 1;
  int cross_rank = 0;  ///< this host's index among the hosts that have a rank of this local rank
  int cross_size = 1;
  std::vector<std::string> hostnames;  ///< by rank
  std::vector<int> host_of;            ///< by rank: index of its host, by first rank
};

/// Returns the topology as `rank` sees it; `hosts` is by rank.
[[nodiscard]] Topology make_topology(int rank, const std::vector<HostIdentity>& hosts);

}  // namespace hvd
