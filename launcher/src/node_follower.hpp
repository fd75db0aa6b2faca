// A node that another one leads: an agent below a guard that is this node's hvdrun.
#pragma once

#include "node_meeting.hpp"
#include "node_options.hpp"
#include "options.hpp"

namespace hvd::launcher {

/// Returns what to exit with, the same as on the leading node. Before any thread is started.
[[nodiscard]] int follow(const Options& options, const NodePlace& place, const NodeTrust& trust);

}  // namespace hvd::launcher
