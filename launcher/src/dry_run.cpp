#include "dry_run.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "launcher_choice.hpp"
#include "mpirun_command.hpp"
#include "option_variables.hpp"
#include "own_environment.hpp"
#include "rank_environment.hpp"
#include "text.hpp"

namespace hvd::launcher {
namespace {

std::string in_words(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) line += fmt::format(" {}", shell_word(word));
  return line;
}

/// mpirun tells its ranks who they are: the one command is mpirun's.
std::string dry_run_of_mpirun(const Options& options, const Plan& plan) {
  std::string text;
  for (const Placement& at : plan.ranks) {
    text += fmt::format("rank {} on {}:{}\n", at.rank, plan.hosts[at.host].name,
                        in_words(options.program));
  }
  const auto command = mpirun_command(options, plan, own_environment());
  return text + fmt::format("through:{}\n", in_words(command.arguments));
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

std::string dry_run(const Options& options, const Plan& plan) {
  if (options.launcher == Launcher::mpirun) return dry_run_of_mpirun(options, plan);
  const JobIdentity job = identity_of(options, plan);
  const Variables of_options = option_variables(options);
  const Variables exported = exported_variables(options.exports, own_environment());
  std::string text;
  for (const Placement& at : plan.ranks) {
    text += fmt::format("rank {} on {}:", at.rank, plan.hosts[at.host].name);
    const Variables variables =
        merge(merge(rank_variables(at, plan), job_variables(job)), of_options);
    for (const std::string& variable : merge(variables, exported)) {
      const bool port = variable.starts_with("MASTER_PORT=") && !contains(exported, "MASTER_PORT");
      const auto equals = variable.find('=') + 1;
      text += fmt::format(" {}{}", variable.substr(0, equals),
                          shell_word(port ? "<port>" : variable.substr(equals)));
    }
    text += in_words(options.program) + "\n";
  }
  return text;
}

}  // namespace hvd::launcher
