// Finds how many cores this process may use, and how many OpenMP threads each rank gets.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

/// Returns the number of CPUs that this process may use, by its affinity mask and the quota of its
/// control groups. It is at least 1.
[[nodiscard]] int usable_cores();

/// Returns `OMP_NUM_THREADS` for each of `local_size` ranks of this host, which is the usable cores
/// divided by `local_size`, and at least 1.
[[nodiscard]] int omp_threads(int local_size);

/// Returns the notice about these numbers, without a newline, or an empty text when none was set.
/// `chosen` has a number per host; 0 means that the user has set the variable there.
[[nodiscard]] std::string omp_notice(const std::vector<int>& chosen);

/// Returns the quota of this process's control groups in cores, rounded up, or nothing when there
/// is no quota. Reads version 2 (cpu.max) and version 1 (cpu.cfs_quota_us).
[[nodiscard]] std::optional<int> quota_cores();

// These are the parts of `quota_cores`. They depend on their arguments only.

/// Returns the folders below `root`, such as "/sys/fs/cgroup", that may hold a quota, from the
/// innermost to the outermost. `cgroups` is the text of /proc/PID/cgroup.
[[nodiscard]] std::vector<std::string> quota_folders(std::string_view cgroups,
                                                     const std::string& root);
/// Reads a text such as "max 100000" or "150000 100000".
[[nodiscard]] std::optional<int> cores_of(std::string_view quota_and_period);

}  // namespace hvd::launcher
