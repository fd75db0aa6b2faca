// How an agent is started on another host.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "hosts.hpp"

namespace hvd::launcher {

struct SshOptions {
  int port = 0;               ///< 0: as ssh's own configuration says
  std::string identity_file;  ///< empty: likewise
  std::chrono::milliseconds connect_timeout{30'000};
};

/// The words of a command that runs `program`, an absolute path, as an agent on `host`. Nothing of
/// what a user typed becomes text for a shell, on either side, but the path of hvdrun itself.
/// Throws LaunchError (usage) when that path has characters that shells disagree on.
[[nodiscard]] std::vector<std::string> ssh_command(const HostSpec& host, const std::string& program,
                                                   const SshOptions& options);

}  // namespace hvd::launcher
