#include "plan/cpu_topology.hpp"

namespace hvd::launcher {

CpuTopology read_cpu_topology(const std::string&) {
  return {.unknown = "this hvdrun was built without hwloc"};
}

}  // namespace hvd::launcher
