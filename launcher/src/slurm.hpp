// A Slurm allocation: which nodes it has, and how an agent is started on one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hosts.hpp"
#include "rank_environment.hpp"

namespace hvd::launcher {

/// "a,b[1-3,07-09]-ib" as Slurm abbreviates it. Throws LaunchError (usage) when it is malformed or
/// stands for more than 65,536 names.
[[nodiscard]] std::vector<std::string> expand_nodelist(std::string_view text);

/// "2(x3),1": 2, 2, 2, 1. Throws as above.
[[nodiscard]] std::vector<int> expand_counts(std::string_view text);

/// The nodes of the allocation that `own` tells of, with as many slots as tasks were asked for, or
/// CPUs where nobody said; nothing outside of one.
[[nodiscard]] std::optional<std::vector<HostSpec>> slurm_hosts(const Variables& own);

/// The words of a command that runs `program` as an agent on `node` of this allocation, beside
/// whatever else runs in it. No shell reads any of it.
[[nodiscard]] std::vector<std::string> srun_command(const std::string& node,
                                                    const std::string& program);

}  // namespace hvd::launcher
