#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/host_identity.hpp>
#include <hvd/core/topology.hpp>

namespace hvd {

HostIdentity HostIdentity::of_this_process() {
  HostIdentity identity;
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) identity.hostname = name.data();
  if (identity.hostname.empty()) identity.hostname = "localhost";

  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::getline(boot, identity.boot_id);
  struct stat status {};
  if (identity.boot_id.empty() || ::stat("/proc/self/ns/net", &status) != 0) {
    // Without them, ranks of different hosts would seem to share one.
    throw Error(Errc::resource,
                fmt::format("/proc does not tell this machine's boot id and network namespace: {}",
                            std::strerror(errno)));
  }
  identity.network_namespace = status.st_ino;
  return identity;
}

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

  std::vector<int> ranks_on(distinct.size());
  std::vector<int> local_rank;  // by rank
  for (const int host : topology.host_of) {
    local_rank.push_back(ranks_on[static_cast<std::size_t>(host)]++);
  }
  const auto self = static_cast<std::size_t>(rank);
  const auto own_host = static_cast<std::size_t>(topology.host_of[self]);
  topology.local_rank = local_rank[self];
  topology.local_size = ranks_on[own_host];
  topology.cross_size = 0;
  for (std::size_t host = 0; host < ranks_on.size(); ++host) {
    if (ranks_on[host] <= topology.local_rank) continue;  // it has no rank of this local rank
    if (host < own_host) ++topology.cross_rank;
    ++topology.cross_size;
  }
  return topology;
}

}  // namespace hvd
