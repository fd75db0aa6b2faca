// hvdrun as the agent of its node (docs/node_mode.md).
#pragma once

#include "options.hpp"

namespace hvd::launcher {

/// Leads the job or follows the node that does. Returns what to exit with. Throws LaunchError.
[[nodiscard]] int run_node(Options options);

}  // namespace hvd::launcher
