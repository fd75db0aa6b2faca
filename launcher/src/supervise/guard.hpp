// Starts a guard, the parent process of an agent, which kills the processes that the agent leaves
// behind when it dies. hvdrun itself does this for an agent that is its child on its own machine.
// All other agents have a guard.
#pragma once

#include <functional>
#include <string_view>

namespace hvd::launcher {

/// Runs `work` in a child and waits. It passes on to the child the signals that users, terminals
/// and schedulers send (`kForwardedSignals`, unless ignored); when it dies itself, the child gets
/// SIGTERM. Once the child has ended, it kills everything that the child left behind, and returns
/// the child's wait status. What `work` throws is printed after `prefix`. Throws LaunchError (71).
/// Must be called before any thread is started.
[[nodiscard]] int run_guarded(const std::function<int()>& work, std::string_view prefix);

}  // namespace hvd::launcher
