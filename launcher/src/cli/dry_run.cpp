#include "cli/dry_run.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "agent/host_binding.hpp"
#include "base/text.hpp"
#include "cli/options.hpp"
#include "plan/launcher_choice.hpp"
#include "plan/rank_environment.hpp"
#include "plan/this_host.hpp"

namespace hvd::launcher {
namespace {

std::string in_words(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) line += fmt::format(" {}", shell_word(word));
  return line;
}

JobIdentity identity_of(const Options& options, const Plan& plan) {
  const bool several = std::any_of(plan.hosts.begin(), plan.hosts.end(), [&](const auto& host) {
    return is_remote(host, options.launcher);
  });
  if (!several) return {"<job id>", 0, "unix:@<name>", "127.0.0.1", 0};
  const std::string address = fmt::format("<address of {}>", plan.hosts.front().name);
  return {"<job id>", 0, fmt::format("tcp:{}:<port>", address), address, 0};
}

}  // namespace

std::string dry_run(const Options& options, const Plan& plan,
                    const std::vector<std::string>& places) {
  const JobIdentity job = identity_of(options, plan);
  const Variables of_options = option_variables(options);
  const Variables exported = exported_variables(options.exports, own_environment());
  std::string text;
  for (const Placement& at : plan.ranks) {
    text += fmt::format("rank {} on {}{}:", at.rank, plan.hosts[at.host].name,
                        places.empty() ? "" : places.at(static_cast<std::size_t>(at.rank)));
    const Variables variables =
        merge(merge(rank_variables(at, plan), job_variables(job)), of_options);
    for (const std::string& variable : merge(variables, exported)) {
      const auto name = variable.substr(0, variable.find('='));
      // A value from -x may be a secret, and this text may end up in logs.
      text += fmt::format(" {}={}", name,
                          shell_word(contains(exported, name) ? "<hidden>"
                                     : name == "MASTER_PORT"  ? "<port>"
                                                              : variable.substr(name.size() + 1)));
    }
    text += in_words(options.program) + "\n";
  }
  return text;
}

std::vector<std::string> places_of_ranks(const Options& options, const Plan& plan) {
  const Variables own = own_environment();
  const Variables variables = merge(own, exported_variables(options.exports, own));
  std::vector<std::string> places(plan.ranks.size());
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    std::vector<std::size_t> ranks;
    for (const Placement& at : plan.ranks) {
      if (at.host == host) ranks.push_back(static_cast<std::size_t>(at.rank));
    }
    const bool here = !is_remote(plan.hosts[host], options.launcher);
    // The agent of another host binds several ranks unless something there is in the way.
    const bool there = !here && (options.binding.requested() ||
                                 (options.binding.to != BindTo::none && ranks.size() > 1));
    Binding binding;
    if (here) {
      binding = plan_host_binding(options.binding, static_cast<int>(ranks.size()), variables);
    }
    for (std::size_t local = 0; local < ranks.size(); ++local) {
      if (!binding.cpus.empty()) {
        places[ranks[local]] = fmt::format(", CPUs {}", cpu_list(binding.cpus[local]));
      } else if (there) {
        places[ranks[local]] = ", CPUs chosen there";
      }
    }
  }
  return places;
}

}  // namespace hvd::launcher
