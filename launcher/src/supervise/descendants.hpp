// Finds and ends all descendants of this process, for a child subreaper that must leave none
// behind.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include <hvd/core/types.hpp>

namespace hvd::launcher {

/// Processes end at once after SIGKILL, except those that are stuck in the kernel. They are not
/// waited for beyond this time.
inline constexpr std::chrono::milliseconds kKillDeadline{2'000};

/// From now on orphaned descendants become children of this process. Throws LaunchError (71).
void become_subreaper();

[[nodiscard]] std::vector<pid_t> children_of(pid_t parent);
/// Returns children, their children and so on. The result is a snapshot, because processes start
/// and end meanwhile.
[[nodiscard]] std::vector<pid_t> descendants_of(pid_t ancestor);

/// Returns the value that `variable` had when the program of `pid` began, an empty text when it had
/// none, and nothing when the process has no environment, as while it executes another program.
[[nodiscard]] std::optional<std::string> variable_of(pid_t pid, std::string_view variable);

/// Kills descendants until this process has no child left. Passes every child that it waited for to
/// `on_reaped`, with its wait status. Blocks at most until `deadline`. Returns whether all are
/// gone.
bool kill_descendants(const std::function<void(pid_t, int)>& on_reaped, Deadline deadline);

/// Kills the children whose environment has HVD_JOB_ID=`job_id`, and those that this process adopts
/// when they end, until none is found. hvdrun calls it when an agent has died, since hvdrun may
/// also have children that do not belong to the job. Blocks at most until `deadline`.
void kill_strays(std::string_view job_id, Deadline deadline);

}  // namespace hvd::launcher
