#include "plan/launcher_choice.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/exit_codes.hpp"
#include "base/text.hpp"
#include "plan/slurm.hpp"
#include "plan/this_host.hpp"

namespace hvd::launcher {
namespace {

bool is_here(const HostSpec& host) { return host.user.empty() && is_this_host(host.name); }

bool all_here(const std::vector<HostSpec>& hosts) {
  return std::all_of(hosts.begin(), hosts.end(), is_here);
}

}  // namespace

Choice choose_launcher(const Options& options, const Variables& own) {
  Choice choice{.launcher = options.launcher, .hosts = {}};
  if (!options.hosts.empty()) {
    choice.hosts = parse_hosts(options.hosts);
  } else if (!options.hostfile.empty()) {
    choice.hosts = read_hostfile(options.hostfile);
  }
  const bool named = !choice.hosts.empty();
  const auto allocation =
      choice.launcher == Launcher::automatic || choice.launcher == Launcher::slurm
          ? slurm_hosts(own)
          : std::nullopt;
  if (choice.launcher == Launcher::slurm && !allocation) {
    throw LaunchError(kExitUsage,
                      "--launcher slurm: there is no allocation (run hvdrun under "
                      "salloc or sbatch)");
  }
  if (!named && allocation) choice.hosts = *allocation;
  if (choice.hosts.empty()) {
    // An MPI operator or a site sets this variable where it prepares hosts for mpirun.
    constexpr const char* kName = "OMPI_MCA_orte_default_hostfile";
    const std::string prepared(value_of(own, kName));
    if (!prepared.empty()) {
      try {
        choice.hosts = read_hostfile(prepared);
      } catch (const LaunchError& error) {
        throw LaunchError(error.code(), fmt::format("{} (from {})", error.what(), kName));
      }
    } else {
      choice.hosts = {{.name = "localhost", .slots = options.num_proc}};
    }
  }
  const bool here = all_here(choice.hosts);
  if (choice.launcher == Launcher::automatic) {
    const bool use_slurm = allocation && !(named && here);
    choice.launcher = use_slurm ? Launcher::slurm : here ? Launcher::local : Launcher::ssh;
  }
  if (choice.launcher == Launcher::local && !here) {
    const auto other = std::find_if_not(choice.hosts.begin(), choice.hosts.end(), is_here);
    throw LaunchError(kExitUsage, fmt::format("--launcher local: host {} is not this host",
                                              in_quotes(other->name)));
  }
  return choice;
}

bool is_remote(const HostSpec& host, Launcher launcher) {
  return launcher == Launcher::slurm || !is_here(host);
}

}  // namespace hvd::launcher
