#include "plan/rank_environment.hpp"

#include <algorithm>
#include <array>
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

bool is_secret(std::string_view name) {
  if (name == "LD_PRELOAD" || name == "HVD_SECRET_FD") return true;
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  constexpr std::array<std::string_view, 4> kWords = {"TOKEN", "SECRET", "KEY", "PASSWORD"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view word) { return upper.find(word) != std::string::npos; });
}

/// Returns whether a variable belongs to this machine. On other machines it has no meaning, or
/// another one, and the login there sets its value.
bool stays_here(std::string_view name) {
  constexpr std::array<std::string_view, 18> kNames = {"CUDA_VISIBLE_DEVICES",
                                                       "HVD_ELASTIC_FD",
                                                       "HVD_WORKER",
                                                       "HVD_WORKER_PLACE",
                                                       "OLDPWD",
                                                       "PWD",
                                                       "SHLVL",
                                                       "_",
                                                       "HOME",
                                                       "USER",
                                                       "LOGNAME",
                                                       "SHELL",
                                                       "MAIL",
                                                       "HOSTNAME",
                                                       "HOST",
                                                       "DISPLAY",
                                                       "TMPDIR",
                                                       "GPG_TTY"};
  constexpr std::array<std::string_view, 4> kPrefixes = {"BASH_FUNC_", "SSH_", "XDG_", "DBUS_"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

Variables rank_variables(const Placement& at, const Plan& plan) {
  const std::size_t size = plan.ranks.size();
  return {
      fmt::format("HVD_RANK={}", at.rank),
      fmt::format("HVD_SIZE={}", size),
      fmt::format("HVD_LOCAL_RANK={}", at.local_rank),
      fmt::format("HVD_LOCAL_SIZE={}", at.local_size),
      fmt::format("HVD_CROSS_RANK={}", at.cross_rank),
      fmt::format("HVD_CROSS_SIZE={}", at.cross_size),
      fmt::format("RANK={}", at.rank),
      fmt::format("WORLD_SIZE={}", size),
      fmt::format("LOCAL_RANK={}", at.local_rank),
      fmt::format("LOCAL_WORLD_SIZE={}", at.local_size),
      fmt::format("GROUP_RANK={}", plan.machine_of(at.host)),
  };
}

Variables job_variables(const JobIdentity& job) {
  return {
      fmt::format("HVD_JOB_ID={}", job.id),
      fmt::format("HVD_RESTART_COUNT={}", job.restart_count),
      fmt::format("HVD_STORE={}", job.store),
      fmt::format("MASTER_ADDR={}", job.master_host),
      fmt::format("MASTER_PORT={}", job.master_port),
  };
}

Variables interface_variables(const std::string& interface) {
  return {
      fmt::format("NCCL_SOCKET_IFNAME=={}", interface),  // "==": only this one
      fmt::format("OMPI_MCA_btl_tcp_if_include={}", interface),
      fmt::format("OMPI_MCA_oob_tcp_if_include={}", interface),
      fmt::format("GLOO_SOCKET_IFNAME={}", interface),
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
  return without(own, {"HVD_SECRET_FILE", "HVD_SECRET_FD", "HVD_ELASTIC_FD", "HVD_WORKER",
                       "HVD_WORKER_PLACE"});
}

Forwarding forwarded_variables(const Variables& own, const std::vector<ExportSpec>& exports) {
  Forwarding result;
  for (const std::string& entry : own) {
    const auto name = name_of(entry);
    const auto is_it = [&](const ExportSpec& spec) { return spec.name == name; };
    if (std::any_of(exports.begin(), exports.end(), is_it)) continue;  // the -x option passes it on
    if (is_secret(name)) {
      result.withheld.emplace_back(name);
    } else if (!stays_here(name)) {
      result.variables.push_back(entry);
    }
  }
  return result;
}

Variables without(const Variables& variables, const std::vector<std::string>& names) {
  Variables rest;
  std::copy_if(variables.begin(), variables.end(), std::back_inserter(rest),
               [&](const std::string& entry) {
                 return std::find(names.begin(), names.end(), name_of(entry)) == names.end();
               });
  return rest;
}

Variables exported_variables(const std::vector<ExportSpec>& exports, const Variables& own) {
  Variables exported;
  for (const ExportSpec& spec : exports) {
    if (spec.value) {
      exported.push_back(fmt::format("{}={}", spec.name, *spec.value));
    } else if (contains(own, spec.name)) {
      exported.push_back(fmt::format("{}={}", spec.name, value_of(own, spec.name)));
    }
  }
  return merge({}, exported);
}

}  // namespace hvd::launcher
