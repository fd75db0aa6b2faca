#include "agent/process_usage.hpp"

#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "base/text.hpp"
#include "supervise/descendants.hpp"

namespace hvd::launcher {
namespace {

ProcessUsage usage_of_one(pid_t pid) {
  return parse_usage(read_file(fmt::format("/proc/{}/stat", pid)),
                     read_file(fmt::format("/proc/{}/statm", pid)));
}

}  // namespace

ProcessUsage parse_usage(std::string_view stat, std::string_view statm) {
  ProcessUsage usage;
  // The name in brackets may hold anything. utime and stime are the 12th and 13th field after it.
  const auto name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return usage;
  std::istringstream fields{std::string(stat.substr(name_end + 1))};
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  std::uint64_t user = 0;
  std::uint64_t system = 0;
  const auto ticks = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  if (fields >> user >> system) {
    usage.cpu = std::chrono::milliseconds{(user + system) * 1000 / ticks};
  }
  std::istringstream pages{std::string(statm)};
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  if (pages >> size >> resident) {
    usage.memory = resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  }
  return usage;
}

ProcessUsage usage_of(pid_t pid, std::span<const GpuState> gpus) {
  std::vector<pid_t> family = descendants_of(pid);
  family.push_back(pid);
  ProcessUsage all;
  for (const pid_t member : family) {
    const ProcessUsage one = usage_of_one(member);
    all.cpu += one.cpu;
    all.memory += one.memory;
  }
  all.gpu = gpu_use(gpus, family);
  return all;
}

}  // namespace hvd::launcher
