#include "rank_environment.hpp"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include <fmt/format.h>

namespace hvd::launcher {
namespace {

std::string_view name_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

auto find(const Variables& variables, std::string_view name) {
  return std::find_if(variables.begin(), variables.end(),
                      [&](const std::string& entry) { return name_of(entry) == name; });
}

}  // namespace

Variables rank_variables(const Placement& at, const Plan& plan, const JobIdentity& job) {
  const std::size_t size = plan.ranks.size();
  return {
      fmt::format("HVD_RANK={}", at.rank),
      fmt::format("HVD_SIZE={}", size),
      fmt::format("HVD_LOCAL_RANK={}", at.local_rank),
      fmt::format("HVD_LOCAL_SIZE={}", at.local_size),
      fmt::format("HVD_CROSS_RANK={}", at.cross_rank),
      fmt::format("HVD_CROSS_SIZE={}", at.cross_size),
      fmt::format("HVD_JOB_ID={}", job.id),
      fmt::format("HVD_RESTART_COUNT={}", job.restart_count),
      fmt::format("HVD_STORE={}", job.store),
      fmt::format("RANK={}", at.rank),
      fmt::format("WORLD_SIZE={}", size),
      fmt::format("LOCAL_RANK={}", at.local_rank),
      fmt::format("LOCAL_WORLD_SIZE={}", at.local_size),
      fmt::format("GROUP_RANK={}", at.host),
      fmt::format("MASTER_ADDR={}", job.master_host),
      fmt::format("MASTER_PORT={}", job.master_port),
  };
}

Variables merge(const Variables& earlier, const Variables& later) {
  Variables merged;
  std::unordered_map<std::string_view, std::size_t> places;
  for (const Variables* part : {&earlier, &later}) {
    for (const std::string& entry : *part) {
      const auto [place, added] = places.try_emplace(name_of(entry), merged.size());
      if (added) {
        merged.push_back(entry);
      } else {
        merged[place->second] = entry;
      }
    }
  }
  return merged;
}

std::string_view value_of(const Variables& variables, std::string_view name) {
  const auto found = find(variables, name);
  if (found == variables.end() || found->size() == name.size()) return {};
  return std::string_view(*found).substr(name.size() + 1);
}

bool contains(const Variables& variables, std::string_view name) {
  return find(variables, name) != variables.end();
}

Variables inherited_variables(const Variables& own) {
  Variables base;
  std::copy_if(own.begin(), own.end(), std::back_inserter(base), [](const std::string& entry) {
    const auto name = name_of(entry);
    return name != "HVD_SECRET_FILE" && name != "HVD_SECRET_FD";
  });
  return base;
}

Variables exported_variables(const std::vector<ExportSpec>& exports) {
  Variables exported;
  for (const ExportSpec& spec : exports) {
    if (spec.value) exported.push_back(spec.name + "=" + *spec.value);
  }
  return exported;
}

}  // namespace hvd::launcher
