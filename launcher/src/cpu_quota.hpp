// What a control group leaves of the machine's cores.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

/// Cores that the quota of this process's control groups amounts to, rounded up; nothing where
/// there is none. Knows version 2 (cpu.max) and version 1 (cpu.cfs_quota_us).
[[nodiscard]] std::optional<int> quota_cores();

// Its parts, pure.

/// The folders of /proc/PID/cgroup's text that may hold a quota, innermost first, below
/// `root`, as "/sys/fs/cgroup".
[[nodiscard]] std::vector<std::string> quota_folders(std::string_view cgroups,
                                                     const std::string& root);
/// "max 100000" or "150000 100000".
[[nodiscard]] std::optional<int> cores_of(std::string_view quota_and_period);

}  // namespace hvd::launcher
