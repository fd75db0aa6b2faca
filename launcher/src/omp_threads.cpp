#include "omp_threads.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "this_host.hpp"

namespace hvd::launcher {

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
