#include "plan/cpus.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <sched.h>

#include "base/text.hpp"

namespace hvd::launcher {
namespace {

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int> cores_in(const std::string& folder) {
  if (const auto cores = cores_of(read_line(folder + "/cpu.max"))) return cores;
  return cores_of(fmt::format("{} {}", read_line(folder + "/cpu.cfs_quota_us"),
                              read_line(folder + "/cpu.cfs_period_us")));
}

}  // namespace

std::vector<std::string> quota_folders(std::string_view cgroups, const std::string& root) {
  std::vector<std::string> folders;
  std::istringstream lines{std::string(cgroups)};
  // A line is "0::/a/b" in version 2 and "4:cpu,cpuacct:/a/b" in version 1.
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool has_cpu = fmt::format(",{},", controllers).find(",cpu,") != std::string::npos;
    if (!controllers.empty() && !has_cpu) continue;
    const std::string base = controllers.empty() ? root : fmt::format("{}/{}", root, controllers);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (path.find("/..") != std::string::npos) path.clear();  // outside this cgroup namespace
    for (;;) {
      folders.push_back(base + path);
      if (path.empty()) break;
      path.resize(path.rfind('/'));
    }
  }
  return folders;
}

std::optional<int> cores_of(std::string_view quota_and_period) {
  std::istringstream fields{std::string(quota_and_period)};
  double quota = 0;
  double period = 0;
  if (!(fields >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  constexpr double kMost = 1e6;
  return std::max(1, static_cast<int>(std::min((quota + period - 1) / period, kMost)));
}

std::optional<int> quota_cores() {
  std::optional<int> least;
  for (const std::string& folder :
       quota_folders(read_file("/proc/self/cgroup"), "/sys/fs/cgroup")) {
    const auto cores = cores_in(folder);
    if (cores && (!least || *cores < *least)) least = cores;
  }
  return least;
}

int usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  const int by_mask =
      ::sched_getaffinity(0, sizeof mask, &mask) == 0 ? std::max(CPU_COUNT(&mask), 1) : 1;
  return std::min(by_mask, quota_cores().value_or(by_mask));
}

int omp_threads(int local_size) { return std::max(1, usable_cores() / std::max(1, local_size)); }

std::string omp_notice(const std::vector<int>& chosen) {
  int least = 0;
  int most = 0;
  for (const int threads : chosen) {
    if (threads == 0) continue;
    least = least == 0 ? threads : std::min(least, threads);
    most = std::max(most, threads);
  }
  if (most == 0) return {};
  if (least == most)
    return fmt::format("OMP_NUM_THREADS={} for each rank, as it was not set", most);
  return fmt::format(
      "OMP_NUM_THREADS={} to {} for each rank, by its host's cores, as it was not set", least,
      most);
}

}  // namespace hvd::launcher
