// What a process and everything that descends from it take from the machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>

#include <sys/types.h>

#include "nvml.hpp"

namespace hvd::launcher {

struct ProcessUsage {
  std::chrono::milliseconds cpu{0};  ///< user and system time so far, of what still runs
  std::uint64_t memory = 0;          ///< resident bytes; what processes share counts for each
  GpuUse gpu{};
};

/// Zero for what is gone already. `gpus` are those of this machine.
[[nodiscard]] ProcessUsage usage_of(pid_t pid, std::span<const GpuState> gpus = {});

/// The text of /proc/PID/stat and of /proc/PID/statm; zero when they are not what they should be.
[[nodiscard]] ProcessUsage parse_usage(std::string_view stat, std::string_view statm);

}  // namespace hvd::launcher
