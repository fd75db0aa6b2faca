#include "transport/agent_command.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/exit_codes.hpp"
#include "base/text.hpp"
#include "plan/slurm.hpp"
#include "supervise/start_process.hpp"

namespace hvd::launcher {

namespace {

/// Refuses a path with the characters below. sshd passes the command to the user's login shell, and
/// every shell takes all other characters literally inside single quotes.
void check_path(const std::string& program) {
  const auto differs = [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\'' || c == '\\' || c == '!' || c == '\x7f';
  };
  if (std::any_of(program.begin(), program.end(), differs)) {
    throw LaunchError(kExitUsage, fmt::format("hvdrun cannot start itself on other hosts from {}: "
                                              "a path without quotes and the like is needed",
                                              in_quotes(program)));
  }
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

std::string own_path() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::vector<std::string> ssh_command(const HostSpec& host, const std::string& program,
                                     const SshOptions& options) {
  check_path(program);
  using std::chrono::seconds;
  const auto timeout = std::max(std::chrono::ceil<seconds>(options.connect_timeout), seconds{1});
  std::vector<std::string> words = {
      "ssh", "-T", "-x", "-a", "-o", "BatchMode=yes",  // nobody is there to type a password
      "-o", fmt::format("ConnectTimeout={}", timeout.count()), "-o", "ClearAllForwardings=yes",
      // The agent's connection is not shared with other clients, so that it ends with this process.
      "-o", "ControlMaster=no", "-o", "ControlPath=none",
      // Heartbeats replace ssh's keepalives, which end a connection after 15 s at the earliest.
      "-o", "LogLevel=ERROR"};
  if (options.port > 0) words.insert(words.end(), {"-p", std::to_string(options.port)});
  if (!options.identity_file.empty()) {
    words.insert(words.end(), {"-i", options.identity_file});
  }
  if (!host.user.empty()) words.insert(words.end(), {"-l", host.user});
  words.insert(words.end(),
               {"--", host.name, fmt::format("exec '{}' {}", program, kRemoteAgentArgument)});
  return words;
}

AgentCommand local_agent(Variables variables, int standard_input) {
  AgentCommand command;
  command.path = "/proc/self/exe";
  command.arguments = {"hvdrun", std::string(kAgentArgument)};
  command.variables = std::move(variables);
  command.standard_input = standard_input;
  return command;
}

AgentCommand remote_agent(const HostSpec& host, const std::string& program,
                          const SshOptions& options, const Variables& own) {
  return through(
      "ssh", host.name, ssh_command(host, program, options),
      contains(own, "SSH_ASKPASS_REQUIRE") ? own : merge(own, {"SSH_ASKPASS_REQUIRE=never"}));
}

AgentCommand slurm_agent(const std::string& node, const std::string& program,
                         const Variables& own) {
  return through("srun", node, srun_command(node, program, own), srun_variables(own));
}

}  // namespace hvd::launcher
