// Measures the processor time and memory of a process and all its descendants.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>

#include <sys/types.h>

#include "agent/nvml.hpp"

namespace hvd::launcher {

struct ProcessUsage {
  std::chrono::milliseconds cpu{0};  ///< user and system time so far, of running processes
  std::uint64_t memory = 0;          ///< resident bytes; shared pages count for each process
  GpuUse gpu{};
};

/// Returns zero for processes that have ended already. `gpus` is the state of this machine's GPUs.
[[nodiscard]] ProcessUsage usage_of(pid_t pid, std::span<const GpuState> gpus = {});

/// Parses the texts of /proc/PID/stat and /proc/PID/statm. Returns zero when they are malformed.
[[nodiscard]] ProcessUsage parse_usage(std::string_view stat, std::string_view statm);

}  // namespace hvd::launcher
