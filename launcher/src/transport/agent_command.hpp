// Makes the commands that start an agent, which is this program, on this host or through ssh or
// srun.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "plan/hosts.hpp"
#include "plan/rank_environment.hpp"

namespace hvd::launcher {

/// The hidden first arguments that make hvdrun an agent.
inline constexpr std::string_view kAgentArgument = "--agent";
inline constexpr std::string_view kRemoteAgentArgument = "--remote-agent";

struct SshOptions {
  int port = 0;               ///< 0: as ssh's own configuration says
  std::string identity_file;  ///< empty: likewise
  std::chrono::milliseconds connect_timeout{30'000};
};

/// Returns the words of a command that runs `program`, an absolute path, as an agent on `host`. No
/// shell on either side interprets text from the user, except the path of hvdrun itself. Throws
/// LaunchError (usage) when that path has characters that shells treat differently.
[[nodiscard]] std::vector<std::string> ssh_command(const HostSpec& host, const std::string& program,
                                                   const SshOptions& options);

struct AgentCommand {
  std::string path;                    ///< of the file to execute
  std::vector<std::string> arguments;  ///< with the program's name first
  Variables variables;
  std::string via;          ///< "ssh" or "srun" when a network lies between; empty: here
  int standard_input = -1;  ///< for the first rank of the host, -1 for none; local agents only
};

/// Returns the command that starts an agent on this host. `variables` is the environment of the
/// agent and, except for what `Prepare` adds, of its ranks.
[[nodiscard]] AgentCommand local_agent(Variables variables, int standard_input);

/// Returns the path of this program, which must not have been replaced since it was started.
[[nodiscard]] std::string own_path();

/// Returns the command that starts `program` as an agent on `host` through ssh. ssh is searched for
/// along `own`'s PATH and runs with `own` as its environment, except that the ssh clients of jump
/// hosts, to which BatchMode does not apply, open no window for a password either unless
/// SSH_ASKPASS_REQUIRE is set. Throws LaunchError: 69 when there is no ssh, 64 as `ssh_command`
/// does.
[[nodiscard]] AgentCommand remote_agent(const HostSpec& host, const std::string& program,
                                        const SshOptions& options, const Variables& own);

/// Returns the command that starts `program` as an agent on a node of this Slurm allocation through
/// srun.
[[nodiscard]] AgentCommand slurm_agent(const std::string& node, const std::string& program,
                                       const Variables& own);

}  // namespace hvd::launcher
