#include "agent_loss.hpp"

#include <chrono>
#include <vector>

#include <fmt/format.h>
#include <sys/wait.h>

#include <hvd/core/version.hpp>

#include "exit_codes.hpp"
#include "heartbeat.hpp"
#include "text.hpp"

namespace hvd::launcher {
namespace {

constexpr int kSshFailed = 255;  // ssh's own; else it exits as the remote command did

/// ssh passes a shell's 128 + N on.
std::string how_ended(int status, bool through_ssh) {
  if (WIFSIGNALED(status)) return fmt::format("was killed by {}", signal_name(WTERMSIG(status)));
  const int code = WEXITSTATUS(status);
  if (through_ssh && code > kExitSignalBase && code != kSshFailed) {
    return fmt::format("was killed by {}", signal_name(code - kExitSignalBase));
  }
  return fmt::format("exited {}", code);
}

std::string with_words(std::string text, const AgentLoss& loss) {
  return loss.last_words.empty() ? text : fmt::format("{}: {}", text, loss.last_words);
}

Trouble explain_failed_start(const AgentLoss& loss, const std::string& host) {
  const int code = WIFEXITED(loss.status) ? WEXITSTATUS(loss.status) : kSshFailed;
  if (code == kSshFailed || loss.via != "ssh") {
    const std::string why = loss.last_words.empty()
                                ? fmt::format("{} {}", loss.via, how_ended(loss.status, false))
                                : loss.last_words;
    return {kExitHostUnreachable, fmt::format("cannot reach {}: {}", host, why)};
  }
  if (code == kExitNotFound || code == kExitNotExecutable) {
    return {kExitHostUnreachable,
            with_words(fmt::format("hvdrun cannot be run on {}; it has to be installed there under "
                                   "the same path",
                                   host),
                       loss)};
  }
  return {kExitHostUnreachable,
          with_words(fmt::format("no agent started on {}: ssh exited {}", host, code), loss)};
}

}  // namespace

std::string last_words(const std::string& text) {
  constexpr std::size_t kLines = 2;
  std::vector<std::string> lines;
  std::string line;
  for (const char c : text + "\n") {
    if (c == '\n') {
      while (!line.empty() && line.back() == ' ') line.pop_back();
      if (!line.empty()) lines.push_back(line);
      line.clear();
    } else if (c != '\r') {
      line += (c >= 0 && c < ' ') || c == '\x7f' ? '?' : c;
    }
  }
  const std::size_t first = lines.size() > kLines ? lines.size() - kLines : 0;
  std::string words;
  for (std::size_t i = first; i < lines.size(); ++i) {
    words += fmt::format("{}{}", words.empty() ? "" : " ", lines[i]);
  }
  return words;
}

Trouble explain(const AgentLoss& loss, const std::string& host) {
  if (!loss.other_version.empty()) {
    return {kExitProtocol, fmt::format("hvdrun is {} here and {} on {}", version(),
                                       in_quotes(loss.other_version), host)};
  }
  if (loss.silent) {
    return {kExitHostUnreachable,
            fmt::format("{} was not heard from for {:.1f} s", host,
                        std::chrono::duration<double>(Heartbeat::kLimit).count())};
  }
  if (loss.via == kViaNode) {
    return {kExitHostUnreachable,
            with_words(fmt::format("lost {}: its hvdrun, or the connection, ended", host), loss)};
  }
  const bool remote = !loss.via.empty();
  if (remote && !loss.greeted) return explain_failed_start(loss, host);
  if (remote && WIFEXITED(loss.status) && WEXITSTATUS(loss.status) == kSshFailed) {
    // An agent that went without a word of ssh's was killed together with its guard.
    if (loss.last_words.empty()) return {kExitInternal, fmt::format("the agent on {} died", host)};
    return {kExitHostUnreachable,
            fmt::format("lost the connection to {}: {}", host, loss.last_words)};
  }
  return {kExitInternal, fmt::format("the agent on {} {}", host, how_ended(loss.status, remote))};
}

}  // namespace hvd::launcher
