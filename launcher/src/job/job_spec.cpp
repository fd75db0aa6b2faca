#include "job/job_spec.hpp"

#include <utility>

#include <fmt/format.h>

#include <hvd/core/version.hpp>

#include "cli/options.hpp"

namespace hvd::launcher {

AgentCommand JobSpec::command(const Options& options, std::size_t host, const HostSpec& to,
                              int standard_input) const {
  if (!remote[host]) {
    return local_agent(several_machines ? without(own, forwarding.withheld) : own,
                       host == 0 ? standard_input : -1);
  }
  const Variables variables = without(own, forwarding.withheld);
  if (options.launcher == Launcher::slurm) return slurm_agent(to.name, hvdrun, variables);
  const SshOptions ssh{.port = options.ssh_port,
                       .identity_file = options.ssh_identity_file,
                       .connect_timeout = options.start_timeout_or_default()};
  return remote_agent(to, hvdrun, ssh, variables);
}

Prepare JobSpec::prepare(const Options& options, const Plan& plan, std::size_t host) const {
  const Variables exported = exported_variables(options.exports, own);
  Prepare frame{.version = std::string(version()),
                .job_id = job_id,
                .epoch = static_cast<std::uint32_t>(options.restart_count),
                .rendezvous = host != 0          ? RendezvousReach::elsewhere
                              : several_machines ? RendezvousReach::network
                                                 : RendezvousReach::machine,
                .host_timeout = remote[host] ? options.host_timeout : std::chrono::milliseconds{0},
                .interfaces = chosen_interfaces(options, own),
                .directory = directory,
                .program = options.program,
                .environment = {},
                .ranks = {},
                .secret = secret,
                .binding = options.binding};
  if (agents_are_their_own && remote[host]) {
    frame.directory.clear();
    frame.program.assign(1, std::string());
    if (agents_have_the_secret) frame.secret = {};
  }
  // An agent on this machine has inherited this environment already.
  if (remote[host]) {
    frame.environment = merge(forwarding.variables, {fmt::format("PWD={}", frame.directory)});
  }
  frame.environment = merge(frame.environment, option_variables(options));
  for (const Placement& at : plan.ranks) {
    if (at.host != host) continue;
    frame.ranks.push_back(
        {.rank = at.rank, .variables = merge(rank_variables(at, plan), exported)});
  }
  return frame;
}

}  // namespace hvd::launcher
