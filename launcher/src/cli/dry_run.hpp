// --dry-run: what would be started.
#pragma once

#include <string>

#include "cli/options.hpp"
#include "plan/plan.hpp"

namespace hvd::launcher {

/// A line per rank: where it would run, the variables it would get and the command, as a shell
/// reads them back. What is chosen at the start only is shown as such.
[[nodiscard]] std::string dry_run(const Options& options, const Plan& plan);

}  // namespace hvd::launcher
