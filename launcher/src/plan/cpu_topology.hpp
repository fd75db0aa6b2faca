// Describes the cores of this machine that ranks may be bound to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/cpu_list.hpp"

namespace hvd::launcher {

struct Core {
  Cpus cpus;          ///< its hardware threads that may be used
  int number = 0;     ///< the first of all its hardware threads, which identifies it on the machine
  int numa = 0;       ///< its NUMA node
  bool held = false;  ///< by another job
};

/// The cores that this process may use, neighbours beside each other.
struct CpuTopology {
  std::vector<Core> cores{};
  /// The affinity mask of this process leaves out CPUs that its control group may use, so somebody
  /// has bound it already.
  bool bound = false;
  /// The number of CPUs whose time the control group may use, if that is less than all of them.
  std::optional<int> quota{};
  std::string unknown{};  ///< why there are no cores here
};

/// Asks hwloc about this machine. If `synthetic` is not empty, it is hwloc's description of another
/// machine, such as "numa:2 core:4 pu:2". A build without hwloc knows no cores.
[[nodiscard]] CpuTopology read_cpu_topology(const std::string& synthetic = {});

}  // namespace hvd::launcher
