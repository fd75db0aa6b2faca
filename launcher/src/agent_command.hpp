// How an agent is started: this program again, here or over ssh.
#pragma once

#include <string>
#include <vector>

#include "hosts.hpp"
#include "rank_environment.hpp"
#include "ssh_command.hpp"

namespace hvd::launcher {

struct AgentCommand {
  std::string path;                    ///< of the file to execute
  std::vector<std::string> arguments;  ///< with the program's name first
  Variables variables;
  std::string via;          ///< "ssh" or "srun" when a network lies between; empty: here
  int standard_input = -1;  ///< for the first rank of the host, -1 for none; here only
};

/// `variables` is its environment and, but for what `Prepare` adds, that of its ranks.
[[nodiscard]] AgentCommand local_agent(Variables variables, int standard_input);

/// ssh is looked for along `own`'s PATH and runs with `own` as its environment. Throws LaunchError:
/// 69 when there is no ssh, 64.
[[nodiscard]] AgentCommand remote_agent(const HostSpec& host, const SshOptions& options,
                                        Variables own);

/// The same for a node of this Slurm allocation.
[[nodiscard]] AgentCommand slurm_agent(const std::string& node, Variables own);

}  // namespace hvd::launcher
