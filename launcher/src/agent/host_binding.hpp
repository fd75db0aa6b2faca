// Plans the binding of this host's ranks, with what other jobs hold and where the GPUs are.
#pragma once

#include <filesystem>
#include <string>

#include "agent/held_cores.hpp"
#include "plan/binding.hpp"
#include "plan/rank_environment.hpp"

namespace hvd::launcher {

/// Where a plan looks for the cores and devices of the host. Tests describe another host.
struct HostSources {
  std::string topology{};  ///< hwloc's description of the cores; empty: those of this host
  std::filesystem::path root = "/";  ///< where the file systems of the kernel are mounted
};

/// Plans with the cores that are free at this moment. `variables` are those of the ranks. Throws
/// LaunchError (usage), as `plan_binding` does.
[[nodiscard]] Binding plan_host_binding(const BindingOptions& options, int ranks,
                                        const Variables& variables,
                                        const HostSources& sources = {});

/// Does the same, and holds the cores of the plan.
[[nodiscard]] Binding bind_host(const BindingOptions& options, int ranks,
                                const Variables& variables, HeldCores& held);

}  // namespace hvd::launcher
