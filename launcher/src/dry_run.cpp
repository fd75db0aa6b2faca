#include "dry_run.hpp"

#include <fmt/format.h>

#include "rank_environment.hpp"
#include "text.hpp"

namespace hvd::launcher {

std::string dry_run(const Options& options, const Plan& plan) {
  const JobIdentity job{.id = "<job id>",
                        .restart_count = 0,
                        .store = "unix:@<name>",
                        .master_host = "127.0.0.1",
                        .master_port = 0};
  const Variables exported = exported_variables(options.exports);
  std::string text;
  for (const Placement& at : plan.ranks) {
    text += fmt::format("rank {} on {}:", at.rank, plan.hosts[at.host].name);
    for (const std::string& variable : merge(rank_variables(at, plan, job), exported)) {
      const bool port = variable.starts_with("MASTER_PORT=") && !contains(exported, "MASTER_PORT");
      const auto equals = variable.find('=') + 1;
      text += fmt::format(" {}{}", variable.substr(0, equals),
                          shell_word(port ? "<port>" : variable.substr(equals)));
    }
    for (const std::string& word : options.program) text += fmt::format(" {}", shell_word(word));
    text += '\n';
  }
  return text;
}

}  // namespace hvd::launcher
