#include "plan/plan.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "base/exit_codes.hpp"

namespace hvd::launcher {

namespace {

/// Adds the ranks of all hosts. The slots of a host are the number of its ranks.
void add_ranks(Plan& plan) {
  std::vector<int> sizes;  // by machine
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    const std::size_t machine = plan.machine_of(host);
    if (machine >= sizes.size()) sizes.resize(machine + 1);
    sizes[machine] += plan.hosts[host].slots;
  }
  std::vector<int> placed(sizes.size());  // by machine
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    const std::size_t machine = plan.machine_of(host);
    const auto here = sizes.begin() + static_cast<std::ptrdiff_t>(machine);
    for (int slot = 0; slot < plan.hosts[host].slots; ++slot) {
      const int local = placed[machine]++;
      const auto has_local = [local](int size) { return local < size; };
      plan.ranks.push_back(
          {.rank = static_cast<int>(plan.ranks.size()),
           .host = host,
           .local_rank = local,
           .local_size = sizes[machine],
           .cross_rank = static_cast<int>(std::count_if(sizes.begin(), here, has_local)),
           .cross_size = static_cast<int>(std::count_if(sizes.begin(), sizes.end(), has_local))});
    }
  }
}

}  // namespace

Plan plan_ranks(const std::vector<HostSpec>& hosts, int num_proc) {
  std::int64_t slots = 0;
  for (const HostSpec& host : hosts) slots += host.slots;
  if (num_proc > slots) {
    throw LaunchError(kExitUsage, fmt::format("-np {} needs {} slots, but the hosts have {}",
                                              num_proc, num_proc, slots));
  }
  Plan filled;
  for (const HostSpec& host : hosts) {
    if (num_proc == 0) break;
    filled.hosts.push_back(host);
    filled.hosts.back().slots = std::min(num_proc, host.slots);
    num_proc -= filled.hosts.back().slots;
  }
  add_ranks(filled);
  // This keeps the slots that the user gave, some of which may be free.
  for (std::size_t host = 0; host < filled.hosts.size(); ++host) filled.hosts[host] = hosts[host];
  return filled;
}

Plan plan_ranks(const std::vector<HostSpec>& hosts, const std::vector<std::string>& machines) {
  Plan plan;
  plan.hosts = hosts;
  std::vector<std::string> known;
  for (const std::string& machine : machines) {
    const auto it = std::find(known.begin(), known.end(), machine);
    plan.machines.push_back(static_cast<std::size_t>(it - known.begin()));
    if (it == known.end()) known.push_back(machine);
  }
  add_ranks(plan);
  return plan;
}

}  // namespace hvd::launcher
