// Which rank runs on which host: decided once, before anything starts.
#pragma once

#include <cstddef>
#include <vector>

#include "hosts.hpp"

namespace hvd::launcher {

struct Placement {
  int rank = 0;
  std::size_t host = 0;  ///< index into `Plan::hosts`
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;  ///< this host's index among those that have a rank of this local rank
  int cross_size = 1;

  friend bool operator==(const Placement&, const Placement&) = default;
};

struct Plan {
  std::vector<HostSpec> hosts;   ///< those that get a rank
  std::vector<Placement> ranks;  ///< by rank
};

/// Fills the hosts in order, each up to its slots, with exactly `num_proc` ranks. Throws
/// LaunchError (usage) with both numbers when the slots do not suffice.
[[nodiscard]] Plan plan_ranks(const std::vector<HostSpec>& hosts, int num_proc);

}  // namespace hvd::launcher
