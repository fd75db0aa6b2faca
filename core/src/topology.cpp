#include "topology.hpp"

namespace hvd {

Topology make_topology(int rank, const std::vector<HostIdentity>& hosts) {
  Topology topology;
  topology.rank = rank;
  topology.size = static_cast<int>(hosts.size());
  std::vector<const HostIdentity*> distinct;
  for (const HostIdentity& host : hosts) {
    std::size_t index = 0;
    while (index < distinct.size() && !distinct[index]->same_host(host)) ++index;
    if (index == distinct.size()) distinct.push_back(&host);
    topology.host_of.push_back(static_cast<int>(index));
    topology.hostnames.push_back(host.hostname);
  }

  const auto host_of = [&](int of) { return topology.host_of[static_cast<std::size_t>(of)]; };
  const auto local_rank_of = [&](int of) {
    int local = 0;
    for (int other = 0; other < of; ++other) local += host_of(other) == host_of(of);
    return local;
  };
  topology.local_rank = local_rank_of(rank);
  topology.local_size = 0;
  topology.cross_size = 0;
  for (int other = 0; other < topology.size; ++other) {
    if (host_of(other) == host_of(rank)) ++topology.local_size;
    if (local_rank_of(other) != topology.local_rank) continue;
    if (host_of(other) < host_of(rank)) ++topology.cross_rank;
    ++topology.cross_size;
  }
  return topology;
}

}  // namespace hvd
