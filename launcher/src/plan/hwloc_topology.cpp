#include <memory>

#include <hwloc.h>

#include "plan/cpu_topology.hpp"

namespace hvd::launcher {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const noexcept { ::hwloc_topology_destroy(topology); }
  void operator()(hwloc_bitmap_t set) const noexcept { ::hwloc_bitmap_free(set); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s, Destroy>;

Topology load(const std::string& synthetic) {
  hwloc_topology_t made = nullptr;
  if (::hwloc_topology_init(&made) != 0) return nullptr;
  Topology topology(made);
  if (!synthetic.empty() && ::hwloc_topology_set_synthetic(made, synthetic.c_str()) != 0) {
    return nullptr;
  }
  // Without this flag hwloc binds the calling thread to one CPU after the other on some machines.
  ::hwloc_topology_set_flags(made, HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING);
  return ::hwloc_topology_load(made) == 0 ? std::move(topology) : nullptr;
}

Cpus cpus_in(hwloc_const_bitmap_t set) {
  Cpus cpus;
  for (int cpu = ::hwloc_bitmap_first(set); cpu >= 0; cpu = ::hwloc_bitmap_next(set, cpu)) {
    cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace

CpuTopology read_cpu_topology(const std::string& synthetic) {
  const Topology topology = load(synthetic);
  if (topology == nullptr) return {.unknown = "hwloc cannot read this machine's topology"};
  if (synthetic.empty() && ::hwloc_topology_is_thissystem(topology.get()) == 0) {
    return {.unknown = "a variable makes hwloc describe another machine"};
  }
  const Bitmap mask(::hwloc_bitmap_alloc());
  if (mask == nullptr ||
      ::hwloc_get_cpubind(topology.get(), mask.get(), HWLOC_CPUBIND_THREAD) != 0) {
    return {.unknown = "the affinity mask cannot be read"};
  }
  const hwloc_const_bitmap_t allowed = ::hwloc_topology_get_allowed_cpuset(topology.get());
  CpuTopology found;
  found.bound = ::hwloc_bitmap_isincluded(allowed, mask.get()) == 0;
  ::hwloc_bitmap_and(mask.get(), mask.get(), allowed);

  // Some virtual machines report CPUs without cores.
  const bool has_cores = ::hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  const Bitmap usable(::hwloc_bitmap_alloc());
  for (hwloc_obj_t core = nullptr;
       (core = ::hwloc_get_next_obj_by_type(topology.get(), type, core)) != nullptr;) {
    ::hwloc_bitmap_and(usable.get(), core->cpuset, mask.get());
    if (::hwloc_bitmap_iszero(usable.get()) != 0) continue;
    found.cores.push_back({.cpus = cpus_in(usable.get()),
                           .number = ::hwloc_bitmap_first(core->complete_cpuset),
                           .numa = ::hwloc_bitmap_first(core->nodeset)});
  }
  if (found.cores.empty()) found.unknown = "hwloc found no core";
  return found;
}

}  // namespace hvd::launcher
