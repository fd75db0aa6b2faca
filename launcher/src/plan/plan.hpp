// Decides which rank runs on which host, once, before any process starts.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plan/hosts.hpp"

namespace hvd::launcher {

struct Placement {
  int rank = 0;
  std::size_t host = 0;  ///< index into `Plan::hosts`
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;  ///< index of this machine among those that have a rank with this local rank
  int cross_size = 1;

  friend bool operator==(const Placement&, const Placement&) = default;
};

struct Plan {
  std::vector<HostSpec> hosts;   ///< the hosts that get a rank
  std::vector<Placement> ranks;  ///< indexed by rank
  /// The number of each host's machine, if several hosts of the plan may be one machine. It is
  /// empty when each host is a machine of its own.
  std::vector<std::size_t> machines{};

  [[nodiscard]] std::size_t machine_of(std::size_t host) const {
    return machines.empty() ? host : machines.at(host);
  }
};

/// Fills the hosts in order, each up to its number of slots, with exactly `num_proc` ranks. Throws
/// LaunchError (usage) with both numbers when there are too few slots.
[[nodiscard]] Plan plan_ranks(const std::vector<HostSpec>& hosts, int num_proc);

/// Uses all slots of all hosts, in order. `machines[i]` is equal for hosts that are one machine.
/// Local and cross ranks count machines, not hosts.
[[nodiscard]] Plan plan_ranks(const std::vector<HostSpec>& hosts,
                              const std::vector<std::string>& machines);

}  // namespace hvd::launcher
