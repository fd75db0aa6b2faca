// Explains to the user why an agent has ended, or has never greeted.
#pragma once

#include <chrono>
#include <string>

namespace hvd::launcher {

/// The facts about the end of an agent that hvdrun did not ask to end.
struct AgentLoss {
  std::string via{};     ///< "ssh", "srun", `kViaNode` or `kViaTask`; empty: an agent beside hvdrun
  bool greeted = false;  ///< it greeted as an agent of this version
  std::string other_version{};          ///< the version that it greeted with, if another one
  std::chrono::milliseconds silent{0};  ///< how long it was silent, if that was too long
  int status = 0;                       ///< as from waitpid, of the local agent, ssh or srun
  std::string last_stderr{};            ///< the last lines of the agent, ssh or a login shell
};

struct Trouble {
  int code = 0;  ///< for hvdrun to exit with
  std::string what;
};

/// The `via` of an agent that hvdrun did not start: it is the hvdrun of another node, or a task of
/// another scheduler has started it.
inline constexpr const char* kViaNode = "node";
inline constexpr const char* kViaTask = "task";

/// Explains the loss. `host` is the host's name as the user wrote it.
[[nodiscard]] Trouble explain(const AgentLoss& loss, const std::string& host);

/// Returns the last lines of `text` as one line, without characters that a terminal interprets.
[[nodiscard]] std::string last_stderr(const std::string& text);

}  // namespace hvd::launcher
