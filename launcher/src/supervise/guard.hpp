// Starts a guard, the parent process of an agent, which kills the processes that the agent leaves
// behind when it dies. hvdrun itself does this for an agent that is its child on its own machine.
// All other agents have a guard.
#pragma once

#include <functional>

#include <sys/types.h>

namespace hvd::launcher {

enum class GuardSignals {
  end_the_guard,  ///< signals have their usual effect; the child gets SIGTERM when the guard dies
  /// The child has a session of its own. The guard passes on to it the signals that users,
  /// terminals and platforms send (`kForwardedSignals`, unless ignored).
  pass_on,
};

/// Runs `work`, which gets the pid of this process, in a child, and waits. Once the child has
/// ended, it kills everything that the child left behind, and returns what a shell would: the
/// child's exit code, or 128 + N when signal N ended it. Where signals are passed on, it prints
/// that such a signal ended the child, as it does before the child handles them; a child that was
/// killed by another signal is an error (69). Throws LaunchError (71). Must be called before any
/// thread is started.
[[nodiscard]] int run_guarded(const std::function<int(pid_t guard)>& work, GuardSignals signals);

}  // namespace hvd::launcher
