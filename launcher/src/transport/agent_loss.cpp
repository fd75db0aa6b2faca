#include "transport/agent_loss.hpp"

#include <chrono>
#include <vector>

#include <fmt/format.h>
#include <sys/wait.h>

#include <hvd/core/version.hpp>

#include "base/exit_codes.hpp"
#include "base/text.hpp"

namespace hvd::launcher {
namespace {

constexpr int kSshFailed = 255;  // ssh itself failed; otherwise it exits as the remote command did

/// Describes a wait status. An agent, also through ssh, exits with 128 + N when signal N has ended
/// it.
std::string how_ended(int status, bool of_agent) {
  if (WIFSIGNALED(status)) return fmt::format("was killed by {}", signal_name(WTERMSIG(status)));
  const int code = WEXITSTATUS(status);
  if (of_agent && code > kExitSignalBase && code != kSshFailed) {
    return fmt::format("was killed by {}", signal_name(code - kExitSignalBase));
  }
  return fmt::format("exited {}", code);
}

std::string with_stderr(std::string text, const AgentLoss& loss) {
  return loss.last_stderr.empty() ? text : fmt::format("{}: {}", text, loss.last_stderr);
}

Trouble explain_failed_start(const AgentLoss& loss, const std::string& host) {
  const int code = WIFEXITED(loss.status) ? WEXITSTATUS(loss.status) : kSshFailed;
  if (code == kSshFailed || loss.via != "ssh") {
    const std::string why = loss.last_stderr.empty()
                                ? fmt::format("{} {}", loss.via, how_ended(loss.status, false))
                                : loss.last_stderr;
    return {kExitHostUnreachable, fmt::format("cannot reach {}: {}", host, why)};
  }
  if (code == kExitNotFound || code == kExitNotExecutable) {
    return {
        kExitHostUnreachable,
        with_stderr(fmt::format("hvdrun cannot be run on {}; it has to be installed there under "
                                "the same path",
                                host),
                    loss)};
  }
  return {kExitHostUnreachable,
          with_stderr(fmt::format("no agent started on {}: ssh exited {}", host, code), loss)};
}

}  // namespace

std::string last_stderr(const std::string& text) {
  constexpr std::size_t kLines = 2;
  std::vector<std::string> lines;
  std::string line;
  for (const char c : text + "\n") {
    if (c == '\n') {
      while (!line.empty() && line.back() == ' ') line.pop_back();
      if (!line.empty()) lines.push_back(line);
      line.clear();
    } else if (c != '\r') {
      line += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
    }
  }
  const std::size_t first = lines.size() > kLines ? lines.size() - kLines : 0;
  std::string last;
  for (std::size_t i = first; i < lines.size(); ++i) {
    last += fmt::format("{}{}", last.empty() ? "" : " ", lines[i]);
  }
  return last;
}

Trouble explain(const AgentLoss& loss, const std::string& host) {
  if (!loss.other_version.empty()) {
    return {kExitProtocol, fmt::format("hvdrun is {} here and {} on {}", version(),
                                       in_quotes(loss.other_version), host)};
  }
  if (loss.silent.count() > 0) {
    return {kExitHostUnreachable,
            fmt::format("{} was not heard from for {:.1f} s (--host-timeout, HVD_HOST_TIMEOUT_S)",
                        host, std::chrono::duration<double>(loss.silent).count())};
  }
  if (loss.via == kViaTask && !loss.greeted) {
    return {kExitHostUnreachable,
            fmt::format("{}: {}", host,
                        loss.last_stderr.empty() ? "no hvdrun of this version answered"
                                                 : loss.last_stderr)};
  }
  if (loss.via == kViaTask) {
    return {
        kExitHostUnreachable,
        with_stderr(fmt::format("lost {}: its task, or the connection to it, ended", host), loss)};
  }
  if (loss.via == kViaNode) {
    return {kExitHostUnreachable,
            with_stderr(fmt::format("lost {}: its hvdrun, or the connection, ended", host), loss)};
  }
  const bool remote = !loss.via.empty();
  if (remote && !loss.greeted) return explain_failed_start(loss, host);
  if (remote && WIFEXITED(loss.status) && WEXITSTATUS(loss.status) == kSshFailed) {
    // ssh has failed without a message, so the agent was killed together with its guard.
    if (loss.last_stderr.empty()) return {kExitInternal, fmt::format("the agent on {} died", host)};
    return {kExitHostUnreachable,
            fmt::format("lost the connection to {}: {}", host, loss.last_stderr)};
  }
  return {kExitInternal, fmt::format("the agent on {} {}", host, how_ended(loss.status, true))};
}

}  // namespace hvd::launcher
