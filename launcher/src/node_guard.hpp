// The process above the agent of a node: what a user, a platform or a terminal sends its signals
// to.
#pragma once

#include <functional>

#include <sys/types.h>

namespace hvd::launcher {

/// Runs `work` in a child with a session of its own and hands it this process as its parent.
/// Signals that ask for an end, and SIGUSR1 and SIGUSR2, are passed on to the child. Once that has
/// ended, kills all it has left behind and returns its exit code, or 128 + N when such a signal N
/// ended it; a child that was killed by another one is an error (69). Throws LaunchError (71).
[[nodiscard]] int run_below_guard(const std::function<int(pid_t guard)>& work);

}  // namespace hvd::launcher
