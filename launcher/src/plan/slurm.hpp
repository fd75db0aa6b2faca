// Reads the nodes of a Slurm allocation and builds the command that starts an agent on one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/hosts.hpp"
#include "plan/rank_environment.hpp"

namespace hvd::launcher {

/// Expands "a,b[1-3,07-09]-ib", Slurm's abbreviation of a node list. Throws LaunchError (usage)
/// when it is malformed or represents more than 65,536 names.
[[nodiscard]] std::vector<std::string> expand_nodelist(std::string_view text);

/// Expands "2(x3),1" to 2, 2, 2, 1. Throws LaunchError (usage) like `expand_nodelist`.
[[nodiscard]] std::vector<int> expand_counts(std::string_view text);

/// Returns the nodes of the allocation in `own`. Each has as many slots as tasks were requested, or
/// as it has CPUs if no number of tasks was requested. Returns nothing outside of an allocation.
[[nodiscard]] std::optional<std::vector<HostSpec>> slurm_hosts(const Variables& own);

/// Returns the words of a command that runs `program` as an agent on `node` of the allocation in
/// `own`, in parallel with other steps. No shell interprets them.
[[nodiscard]] std::vector<std::string> srun_command(const std::string& node,
                                                    const std::string& program,
                                                    const Variables& own);

/// Returns the environment of that command: `own` without what srun takes for options that give
/// each task a share of the node. An agent is the only task of its step, and has all of it.
[[nodiscard]] Variables srun_variables(const Variables& own);

}  // namespace hvd::launcher
