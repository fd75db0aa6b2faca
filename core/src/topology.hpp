// Local and cross ranks from the hosts that the ranks run on. A pure function.
#pragma once

#include <vector>

#include <hvd/core/peer_network.hpp>
#include <hvd/core/topology.hpp>

namespace hvd {

[[nodiscard]] Topology make_topology(int rank, const std::vector<HostIdentity>& hosts);

}  // namespace hvd
