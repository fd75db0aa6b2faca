#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hvd/core/internal/host_identity.hpp>
#include <hvd/core/topology.hpp>

namespace hvd {
namespace {

using testing::ElementsAre;

std::vector<HostIdentity> on_hosts(std::initializer_list<const char*> names) {
  std::vector<HostIdentity> hosts;
  for (const char* name : names) hosts.push_back({name, std::string("boot-") + name, 1});
  return hosts;
}

TEST(Topology, OneHost) {
  const Topology topology = make_topology(2, on_hosts({"a", "a", "a"}));
  EXPECT_EQ(topology.local_rank, 2);
  EXPECT_EQ(topology.local_size, 3);
  EXPECT_EQ(topology.cross_rank, 0);
  EXPECT_EQ(topology.cross_size, 1);
}

TEST(Topology, UnequalHostsAndInterleavedRanks) {
  const auto hosts = on_hosts({"a", "b", "a", "a", "b"});
  const Topology last = make_topology(4, hosts);
  EXPECT_EQ(last.local_rank, 1);
  EXPECT_EQ(last.local_size, 2);
  EXPECT_EQ(last.cross_rank, 1);
  EXPECT_EQ(last.cross_size, 2);
  EXPECT_THAT(last.host_of, ElementsAre(0, 1, 0, 0, 1));
  EXPECT_THAT(last.hostnames, ElementsAre("a", "b", "a", "a", "b"));
  const Topology alone = make_topology(3, hosts);  // the only rank with local rank 2
  EXPECT_EQ(alone.local_rank, 2);
  EXPECT_EQ(alone.cross_size, 1);
  EXPECT_EQ(alone.cross_rank, 0);
}

TEST(Topology, NetworkNamespacesOfOneMachineAreHosts) {
  std::vector<HostIdentity> hosts = on_hosts({"a", "a"});
  hosts[1].network_namespace = 2;
  EXPECT_EQ(make_topology(1, hosts).local_size, 1);
  EXPECT_EQ(make_topology(1, hosts).cross_rank, 1);
}

}  // namespace
}  // namespace hvd
