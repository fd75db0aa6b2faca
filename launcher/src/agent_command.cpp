#include "agent_command.hpp"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "agent_link.hpp"
#include "exit_codes.hpp"
#include "program.hpp"
#include "slurm.hpp"

namespace hvd::launcher {

namespace {

std::string own_path() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

AgentCommand through(const std::string& via, const std::string& host,
                     std::vector<std::string> words, Variables own) {
  AgentCommand command;
  try {
    command.path = find_program(via, value_of(own, "PATH"));
  } catch (const LaunchError& error) {
    throw LaunchError(kExitHostUnreachable, fmt::format("cannot reach {}: {}", host, error.what()));
  }
  command.arguments = std::move(words);
  command.variables = std::move(own);
  command.via = via;
  return command;
}

}  // namespace

AgentCommand local_agent(Variables variables, int standard_input) {
  AgentCommand command;
  command.path = "/proc/self/exe";
  command.arguments = {"hvdrun", std::string(kAgentArgument)};
  command.variables = std::move(variables);
  command.standard_input = standard_input;
  return command;
}

AgentCommand remote_agent(const HostSpec& host, const SshOptions& options, Variables own) {
  return through("ssh", host.name, ssh_command(host, own_path(), options), std::move(own));
}

AgentCommand slurm_agent(const std::string& node, Variables own) {
  return through("srun", node, srun_command(node, own_path()), std::move(own));
}

}  // namespace hvd::launcher
