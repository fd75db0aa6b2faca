// A process above an agent, which ends what a dying agent leaves behind. hvdrun itself is that
// process for an agent beside it; elsewhere, below ssh or as the hvdrun of a node, a guard is.
#pragma once

#include <functional>

#include <sys/types.h>

namespace hvd::launcher {

enum class GuardSignals {
  end_the_guard,  ///< they have their usual effect, and the child gets SIGTERM when the guard dies
  /// The child has a session of its own, and the guard passes on to it what users, terminals and
  /// platforms send (`kForwardedSignals`, unless ignored).
  pass_on,
};

/// Runs `work` in a child, hands it the pid of this process, and waits. Once the child has ended,
/// kills everything that it left behind, and returns what a shell would: its exit code, or 128 + N
/// when signal N ended it. Where signals are passed on, a child that another signal killed is an
/// error (69). Throws LaunchError (71). Call it before any thread is started.
[[nodiscard]] int run_guarded(const std::function<int(pid_t guard)>& work, GuardSignals signals);

}  // namespace hvd::launcher
