#include "ssh_command.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "agent_link.hpp"
#include "exit_codes.hpp"
#include "text.hpp"

namespace hvd::launcher {
namespace {

/// sshd hands the command to the login shell, whichever it is: in single quotes all of them take
/// these literally.
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

}  // namespace

std::vector<std::string> ssh_command(const HostSpec& host, const std::string& program,
                                     const SshOptions& options) {
  check_path(program);
  using std::chrono::seconds;
  const auto timeout = std::max(std::chrono::ceil<seconds>(options.connect_timeout), seconds{1});
  std::vector<std::string> words = {
      "ssh", "-T", "-x", "-a", "-o", "BatchMode=yes",  // nobody is there to type a password
      "-o", fmt::format("ConnectTimeout={}", timeout.count()), "-o", "ClearAllForwardings=yes",
      // A connection of our own, which ends with us.
      "-o", "ControlMaster=no", "-o", "ControlPath=none",
      // Beats take the place of ssh's own, which end a connection after 15 s at the earliest.
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

}  // namespace hvd::launcher
