// Implements --dry-run, which prints what would be started.
#pragma once

#include <string>
#include <vector>

#include "cli/options.hpp"
#include "plan/plan.hpp"

namespace hvd::launcher {

/// Returns a line per rank: its host, what `places` says of its cores, its variables and its
/// command, quoted for a shell. Values that are chosen only when the job starts are shown as
/// placeholders. `places` has a text for each rank, or is empty.
[[nodiscard]] std::string dry_run(const Options& options, const Plan& plan,
                                  const std::vector<std::string>& places = {});

/// Returns for each rank a text such as ", CPUs 0-3", which is empty for a rank that would not be
/// bound. Cores that other jobs hold now are not used. Other hosts are not asked. Throws
/// LaunchError (usage) when this host cannot do what the options ask for.
[[nodiscard]] std::vector<std::string> places_of_ranks(const Options& options, const Plan& plan);

}  // namespace hvd::launcher
