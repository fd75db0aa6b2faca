// Decides on which hosts a job runs and how its ranks are started there.
#pragma once

#include <vector>

#include "cli/options.hpp"
#include "plan/hosts.hpp"
#include "plan/rank_environment.hpp"

namespace hvd::launcher {

struct Choice {
  Launcher launcher = Launcher::local;
  std::vector<HostSpec> hosts;
};

/// Takes the hosts from the options. Without them it takes the hosts of a Slurm allocation, else
/// those in the hostfile that OMPI_MCA_orte_default_hostfile names, else this host with one slot
/// per rank. `automatic` becomes slurm in an allocation, ssh if some host is not this one, and
/// local otherwise. `own` is hvdrun's environment. Throws LaunchError.
[[nodiscard]] Choice choose_launcher(const Options& options, const Variables& own);

/// Returns whether an agent on another machine starts the ranks of `host`, and not an agent beside
/// this hvdrun.
[[nodiscard]] bool is_remote(const HostSpec& host, Launcher launcher);

}  // namespace hvd::launcher
