// hvdrun as the agent of its node (docs/how-to/node_mode.md).
#pragma once

#include "cli/options.hpp"
#include "node/node_meeting.hpp"
#include "node/node_options.hpp"

namespace hvd::launcher {

/// Leads the job or follows the node that does. Returns what to exit with. Throws LaunchError.
[[nodiscard]] int run_node(Options options);

/// Obeys the node that leads: this process becomes the guard of an agent. Returns what to exit
/// with, the same as on the leading node. Before any thread is started.
[[nodiscard]] int follow(const Options& options, const NodeConfig& config, const NodeTrust& trust);

}  // namespace hvd::launcher
