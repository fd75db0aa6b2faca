#include "mpirun_command.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "exit_codes.hpp"
#include "omp_threads.hpp"
#include "option_variables.hpp"
#include "text.hpp"

namespace hvd::launcher {
namespace {

/// mpirun's host list has no users and no brackets.
std::string host_list(const Plan& plan) {
  std::string list;
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    const HostSpec& spec = plan.hosts[host];
    if (!spec.user.empty() || spec.name.find(':') != std::string::npos) {
      throw LaunchError(kExitUsage,
                        fmt::format("--launcher mpirun: it knows neither users nor IPv6 addresses "
                                    "of hosts ({}); --launcher ssh does",
                                    spec.name));
    }
    const auto ranks = std::count_if(plan.ranks.begin(), plan.ranks.end(),
                                     [&](const Placement& at) { return at.host == host; });
    list += fmt::format("{}{}:{}", list.empty() ? "" : ",", spec.name, ranks);
  }
  return list;
}

std::vector<std::string> exported_names(const Variables& variables) {
  std::vector<std::string> names;
  for (const std::string& entry : variables) {
    std::string name = entry.substr(0, entry.find('='));
    const bool plain = name.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                           "0123456789_") == std::string::npos;
    // mpirun passes its own variables on by itself, and says so when told to.
    if (plain && !name.starts_with("OMPI_") && !name.starts_with("PMIX_")) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

/// What this mpirun calls the parameters of its own that are set here.
struct Spelling {
  std::vector<std::string> tags;  ///< each line of output with its rank
  const char* set;
  const char* full_names;
  const char* ssh_arguments;
  const char* interfaces;
};

Spelling spelling_of(OpenMpi kind) {
  if (kind == OpenMpi::prrte) {
    return {.tags = {"--output", "tag"},
            .set = "--prtemca",
            .full_names = "prte_keep_fqdn_hostnames",
            .ssh_arguments = "plm_ssh_args",
            .interfaces = "prte_if_include"};
  }
  return {.tags = {"--tag-output"},
          .set = "--mca",
          .full_names = "orte_keep_fqdn_hostnames",
          .ssh_arguments = "plm_rsh_args",
          .interfaces = "oob_tcp_if_include"};
}

}  // namespace

MpirunCommand mpirun_command(const Options& options, const Plan& plan, const Variables& own) {
  MpirunCommand command;
  const Forwarding forwarding = forwarded_variables(own, options.exports);
  Variables passed = merge(merge(forwarding.variables, option_variables(options)),
                           exported_variables(options.exports, own));
  // Which interface an address block means is known on each host only.
  if (!options.interfaces.empty() && options.interfaces.find('/') == std::string::npos) {
    passed = merge(interface_variables(options.interfaces), passed);
  }
  if (!contains(passed, "OMP_NUM_THREADS")) {
    int most = 1;
    for (const Placement& at : plan.ranks) most = std::max(most, at.local_size);
    command.threads = omp_threads(most);
    passed.push_back(fmt::format("OMP_NUM_THREADS={}", command.threads));
  }
  // hvdrun asks no less of its user for root than mpirun does, and has been asked already.
  command.variables = merge(merge(without(own, forwarding.withheld), passed),
                            {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});

  if (open_mpi(own) == OpenMpi::prrte) command.kind = OpenMpi::prrte;
  const Spelling spelling = spelling_of(command.kind);

  auto& words = command.arguments;
  words = {"mpirun", "-np", std::to_string(plan.ranks.size()), "--host", host_list(plan)};
  words.insert(words.end(), spelling.tags.begin(), spelling.tags.end());
  words.insert(words.end(), {// Threads where the program wants them.
                             "--bind-to", "none",
                             // Names as they were typed, not cut at the first dot.
                             spelling.set, spelling.full_names, "1"});
  std::string ssh;
  if (options.ssh_port > 0) ssh += fmt::format("-p {}", options.ssh_port);
  if (!options.ssh_identity_file.empty()) {
    ssh += fmt::format("{}-i {}", ssh.empty() ? "" : " ", options.ssh_identity_file);
  }
  if (!ssh.empty()) words.insert(words.end(), {spelling.set, spelling.ssh_arguments, ssh});
  if (!options.interfaces.empty()) {
    words.insert(words.end(), {"--mca", "btl_tcp_if_include", options.interfaces});
    words.insert(words.end(), {spelling.set, spelling.interfaces, options.interfaces});
  }
  for (std::string& name : exported_names(passed))
    words.insert(words.end(), {"-x", std::move(name)});
  for (std::string& word : split_words(options.mpi_args)) words.push_back(std::move(word));
  words.insert(words.end(), options.program.begin(), options.program.end());
  return command;
}

}  // namespace hvd::launcher
