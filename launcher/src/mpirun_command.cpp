#include "mpirun_command.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "exit_codes.hpp"
#include "program.hpp"
#include "this_host.hpp"

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

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = text.find_first_not_of(' '); begin != std::string::npos;) {
    const auto end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(' ', end);
  }
  return words;
}

}  // namespace

MpirunCommand mpirun_command(const Options& options, const Plan& plan, const Variables& own) {
  MpirunCommand command;
  const Forwarding forwarding = forwarded_variables(own, options.exports);
  Variables passed = merge(merge(forwarding.variables, exported_variables(options.tuning, {})),
                           exported_variables(options.exports, own));
  if (!options.interfaces.empty()) {
    passed = merge(passed, {fmt::format("HVD_NETWORK_INTERFACES={}", options.interfaces)});
  }
  if (options.start_timeout) {
    const std::chrono::duration<double> seconds = *options.start_timeout;
    passed = merge(passed, {fmt::format("HVD_START_TIMEOUT={}", seconds.count())});
  }
  if (!contains(passed, "OMP_NUM_THREADS")) {
    int most = 1;
    for (const Placement& at : plan.ranks) most = std::max(most, at.local_size);
    passed.push_back(fmt::format("OMP_NUM_THREADS={}", std::max(1, usable_cores() / most)));
  }
  // hvdrun asks no less of its user for root than mpirun does, and has been asked already.
  command.variables = merge(merge(without(own, forwarding.withheld), passed),
                            {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});

  auto& words = command.arguments;
  words = {"mpirun", "-np", std::to_string(plan.ranks.size()), "--host", host_list(plan),
           // Each line with its rank, and threads where the program wants them.
           "--tag-output", "--bind-to", "none",
           // Names as they were typed, not cut at the first dot.
           "--mca", "orte_keep_fqdn_hostnames", "1"};
  std::string ssh;
  if (options.ssh_port > 0) ssh += fmt::format("-p {}", options.ssh_port);
  if (!options.ssh_identity_file.empty()) {
    ssh += fmt::format("{}-i {}", ssh.empty() ? "" : " ", options.ssh_identity_file);
  }
  if (!ssh.empty()) words.insert(words.end(), {"--mca", "plm_rsh_args", ssh});
  if (!options.interfaces.empty()) {
    for (const char* parameter : {"btl_tcp_if_include", "oob_tcp_if_include"}) {
      words.insert(words.end(), {"--mca", parameter, options.interfaces});
    }
  }
  for (std::string& name : exported_names(passed))
    words.insert(words.end(), {"-x", std::move(name)});
  for (std::string& word : split_words(options.mpi_args)) words.push_back(std::move(word));
  words.insert(words.end(), options.program.begin(), options.program.end());
  return command;
}

bool has_open_mpi(const Variables& own) {
  try {
    for (const char* program : {"mpirun", "orterun"}) {
      static_cast<void>(find_program(program, value_of(own, "PATH")));
    }
    return true;
  } catch (const LaunchError&) {
    return false;
  }
}

}  // namespace hvd::launcher
