// Tells which rank runs on which host.
#pragma once

#include <string>
#include <vector>

namespace hvd {

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

}  // namespace hvd
