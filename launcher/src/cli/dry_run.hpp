// Implements --dry-run, which prints what would be started.
#pragma once

#include <string>

#include "cli/options.hpp"
#include "plan/plan.hpp"

namespace hvd::launcher {

/// Returns a line per rank: its host, its variables and its command, quoted for a shell. Values
/// that are chosen only when the job starts are shown as placeholders.
[[nodiscard]] std::string dry_run(const Options& options, const Plan& plan);

}  // namespace hvd::launcher
