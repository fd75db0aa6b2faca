#include "agent/host_binding.hpp"

#include <hvd/core/error.hpp>
#include <hvd/core/internal/network_interfaces.hpp>

#include "plan/cpus.hpp"
#include "plan/devices.hpp"
#include "plan/rank_environment.hpp"

namespace hvd::launcher {
namespace {

/// Returns the quota of the control group if it is less than the CPUs of these cores.
std::optional<int> quota_below(const std::vector<Core>& cores) {
  std::size_t cpus = 0;
  for (const Core& core : cores) cpus += core.cpus.size();
  const auto quota = quota_cores();
  return quota && static_cast<std::size_t>(*quota) < cpus ? quota : std::nullopt;
}

/// Returns the CPUs near the network card that the ranks use, if there is one.
Cpus cpus_near_network(const Variables& variables, const std::filesystem::path& root) {
  try {
    return cpus_near_interface(
        reachable_address(value_of(variables, "HVD_NETWORK_INTERFACES")).interface, root);
  } catch (const Error&) {
    return {};  // the ranks will say which interface they miss, if they need one
  }
}

}  // namespace

Binding plan_host_binding(const BindingOptions& options, int ranks, const Variables& variables,
                          const HostSources& sources) {
  // To read the topology takes milliseconds, and most jobs of one rank do not need it.
  const bool reads = options.requested() || (ranks > 1 && options.to == BindTo::automatic);
  CpuTopology topology = reads ? read_cpu_topology(sources.topology) : CpuTopology();
  topology.quota = quota_below(topology.cores);
  for (Core& core : topology.cores) core.held = HeldCores::is_held(core.number);
  std::vector<Cpus> devices = cpus_near_gpus(variables, sources.root);
  if (devices.empty()) devices.push_back(cpus_near_network(variables, sources.root));
  std::vector<Cpus> near;
  for (int rank = 0; rank < ranks; ++rank) {
    near.push_back(devices[static_cast<std::size_t>(rank) % devices.size()]);
  }
  return plan_binding(options, ranks, topology, near);
}

Binding bind_host(const BindingOptions& options, int ranks, const Variables& variables,
                  HeldCores& held) {
  // Another job may take a core after this one has planned. The next plan then sees that the core
  // is held. Jobs hold cores in ascending order, so one of them succeeds.
  constexpr int kAttempts = 8;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Binding binding = plan_host_binding(options, ranks, variables);
    if (held.hold(binding.cores)) return binding;
  }
  return {.unbound = "the cores could not be held against other jobs"};
}

}  // namespace hvd::launcher
