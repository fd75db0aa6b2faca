// A process above an agent on another host: what hvdrun itself is for the agents beside it.
#pragma once

#include <functional>

namespace hvd::launcher {

/// Runs `work` in a child. Once that has ended, however, kills everything it has left behind, and
/// returns what a shell would: its exit code, or 128 + signal. The child gets SIGTERM when this
/// process dies. Throws LaunchError (71). Before any thread is started.
[[nodiscard]] int run_guarded(const std::function<int()>& work);

}  // namespace hvd::launcher
