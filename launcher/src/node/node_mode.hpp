// Runs hvdrun as the agent of its node (docs/how-to/node_mode.md).
#pragma once

#include "cli/options.hpp"
#include "node/node_options.hpp"
#include "node/node_rendezvous.hpp"

namespace hvd::launcher {

/// Leads the job or follows the node that leads it. Returns the exit code. Throws LaunchError.
[[nodiscard]] int run_node(Options options);

/// Follows the leading node: this process becomes the guard of an agent. Returns the exit code,
/// which is that of the leading node. Must be called before any thread is started.
[[nodiscard]] int follow(const Options& options, const NodeConfig& config, const NodeTrust& trust);

}  // namespace hvd::launcher
