// Everything that descends from this process, for a child subreaper that must leave nothing behind.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include <hvd/core/types.hpp>

namespace hvd::launcher {

/// After SIGKILL processes go at once, but for those stuck in the kernel, which nobody waits for.
inline constexpr std::chrono::milliseconds kKillDeadline{2'000};

/// From now on orphaned descendants become children of this process. Throws LaunchError (71).
void become_subreaper();

[[nodiscard]] std::vector<pid_t> children_of(pid_t parent);
/// Children, their children and so on. A snapshot: processes come and go meanwhile.
[[nodiscard]] std::vector<pid_t> descendants_of(pid_t ancestor);

/// The text of a file such as /proc/PID/stat; empty where the process has ended meanwhile.
[[nodiscard]] std::string read_process_file(const std::string& path);

/// The value `variable` had when the program of `pid` began; empty when unknown.
[[nodiscard]] std::string variable_of(pid_t pid, std::string_view variable);

/// Kills descendants until this process has no child left; every child waited for is handed to
/// `on_reaped` with its wait status. Blocks, at most until `deadline`. Returns whether all are
/// gone.
bool kill_descendants(const std::function<void(pid_t, int)>& on_reaped, Deadline deadline);

/// Kills the children, adopted ones that is, whose environment has HVD_JOB_ID=`job_id`, and what
/// they leave to this process, until none is found. For hvdrun when an agent has died: it may have
/// other children that are none of its business. Blocks, at most until `deadline`.
void kill_strays(std::string_view job_id, Deadline deadline);

}  // namespace hvd::launcher
