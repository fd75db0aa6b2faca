#include "plan.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "exit_codes.hpp"

namespace hvd::launcher {

Plan plan_ranks(const std::vector<HostSpec>& hosts, int num_proc) {
  std::int64_t slots = 0;
  for (const HostSpec& host : hosts) slots += host.slots;
  if (num_proc > slots) {
    throw LaunchError(kExitUsage, fmt::format("-np {} needs {} slots, but the hosts have {}",
                                              num_proc, num_proc, slots));
  }

  Plan plan;
  std::vector<int> local_sizes;
  int left = num_proc;
  for (const HostSpec& host : hosts) {
    if (left == 0) break;
    const int local_size = std::min(left, host.slots);
    plan.hosts.push_back(host);
    local_sizes.push_back(local_size);
    left -= local_size;
  }
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    for (int local = 0; local < local_sizes[host]; ++local) {
      const auto has_local = [local](int size) { return local < size; };
      const auto here = local_sizes.begin() + static_cast<std::ptrdiff_t>(host);
      plan.ranks.push_back(
          {.rank = static_cast<int>(plan.ranks.size()),
           .host = host,
           .local_rank = local,
           .local_size = local_sizes[host],
           .cross_rank = static_cast<int>(std::count_if(local_sizes.begin(), here, has_local)),
           .cross_size =
               static_cast<int>(std::count_if(local_sizes.begin(), local_sizes.end(), has_local))});
    }
  }
  return plan;
}

}  // namespace hvd::launcher
