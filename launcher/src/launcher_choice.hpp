// Which hosts a job runs on, and what starts its ranks there.
#pragma once

#include <vector>

#include "hosts.hpp"
#include "options.hpp"
#include "rank_environment.hpp"

namespace hvd::launcher {

struct Choice {
  Launcher launcher = Launcher::local;
  std::vector<HostSpec> hosts;
};

/// Hosts: those of the options, else the nodes of a Slurm allocation, else the hostfile that
/// OMPI_MCA_orte_default_hostfile names, else this host with a slot for each rank. `automatic`
/// becomes slurm in an allocation, else ssh where a host is not this one, else local. `own` is
/// hvdrun's environment. Throws LaunchError.
[[nodiscard]] Choice choose_launcher(const Options& options, const Variables& own);

/// Whether ranks of `host` are started by something else than this very hvdrun.
[[nodiscard]] bool is_remote(const HostSpec& host, Launcher launcher);

}  // namespace hvd::launcher
