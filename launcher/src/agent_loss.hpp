// What it means that an agent is gone, or was never there.
#pragma once

#include <string>

namespace hvd::launcher {

/// What is known of an agent's end. Not of one that was told to go.
struct AgentLoss {
  std::string via{};            ///< "ssh", "srun" or `kViaNode`; empty: an agent beside hvdrun
  bool greeted = false;         ///< it was an agent of this version
  std::string other_version{};  ///< it greeted as an agent of this other one
  bool silent = false;          ///< it was not heard from for too long
  int status = 0;               ///< as from waitpid, of the agent here or of ssh or srun
  std::string last_words{};     ///< what it, ssh or a shell on the way wrote at last
};

struct Trouble {
  int code = 0;  ///< for hvdrun to exit with
  std::string what;
};

/// An agent that came by itself: the hvdrun of another node.
inline constexpr const char* kViaNode = "node";

/// Pure. `host` as the user wrote it.
[[nodiscard]] Trouble explain(const AgentLoss& loss, const std::string& host);

/// The last lines of `text`, in one line and without what a terminal interprets.
[[nodiscard]] std::string last_words(const std::string& text);

}  // namespace hvd::launcher
