// hvdrun starts the ranks of a job, watches them and ends them together.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/version.hpp>

#include "agent/agent.hpp"
#include "base/descriptors.hpp"
#include "base/exit_codes.hpp"
#include "cli/check_build.hpp"
#include "cli/dry_run.hpp"
#include "cli/options.hpp"
#include "job/attached_job.hpp"
#include "job/elastic_job.hpp"
#include "job/job.hpp"
#include "node/node_mode.hpp"
#include "plan/launcher_choice.hpp"
#include "plan/machine.hpp"
#include "plan/plan.hpp"
#include "plan/this_host.hpp"
#include "status/status_socket.hpp"
#include "transport/agent_command.hpp"

namespace {

using namespace hvd::launcher;

/// Runs `hvdrun status [JOB]`.
int print_status(const std::vector<std::string>& arguments) {
  if (arguments.size() > 2) throw LaunchError(kExitUsage, "expected: hvdrun status [JOB]");
  fmt::print("{}", ask_status(arguments.size() == 2 ? arguments[1] : ""));
  return 0;
}

/// Returns whether this machine has several names in the plan, and so several agents.
bool has_several_agents_here(const Options& options, const Plan& plan) {
  return std::count_if(plan.hosts.begin(), plan.hosts.end(), [&](const HostSpec& host) {
           return !is_remote(host, options.launcher);
         }) > 1;
}

int run_elastic_job(Options options) {
  // ssh reaches hosts that a script lists, unless they are this machine.
  Choice choice{.launcher = Launcher::ssh, .hosts = {}};
  if (options.elastic.discovery_script.empty()) {
    choice = choose_launcher(options, own_environment());
  }
  options.launcher = choice.launcher;
  if (!options.binding.requested()) options.binding.to = BindTo::none;
  return ElasticJob(std::move(options), std::move(choice.hosts)).run();
}

int launch(const std::vector<std::string>& arguments) {
  Options options = parse_options(arguments, own_environment());
  if (options.help) {
    fmt::print("{}", help_text());
    return 0;
  }
  if (options.version) {
    fmt::print("hvdrun {}\n", hvd::version());
    return 0;
  }
  if (options.check_build) {
    fmt::print("{}{}", build_table(read_build_record()),
               machine_table(look_at_machine(own_environment())));
    return 0;
  }
  if (options.node.given()) return run_node(std::move(options));
  if (options.elastic.given()) return run_elastic_job(std::move(options));
  Choice choice = choose_launcher(options, own_environment());
  options.launcher = choice.launcher;
  const Plan plan = plan_ranks(choice.hosts, options.num_proc);
  if (has_several_agents_here(options, plan) && !options.binding.requested()) {
    options.binding.to = BindTo::none;  // each of them would take the whole machine for its ranks
  }
  if (options.dry_run) {
    fmt::print("{}", dry_run(options, plan, places_of_ranks(options, plan)));
    return 0;
  }
  return run_with_restarts(std::move(options),
                           [&](const Options& of_try, const auto& /*must_end*/) {
                             return std::make_unique<Job>(of_try, plan);
                           });
}

/// Returns the descriptor of "--agent [descriptor]" or "--remote-agent [descriptor]", or -1.
int descriptor_in(const std::vector<std::string>& arguments) {
  return arguments.size() > 1 ? std::stoi(arguments[1]) : -1;
}

int complain(int code, const char* what) {
  fmt::print(stderr, "hvdrun: {}\n", what);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    // With SIG_IGN, which a parent may leave, the ends of children would go unnoticed.
    ::signal(SIGCHLD, SIG_DFL);
    fill_standard_descriptors();
    raise_descriptor_limit();
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (!arguments.empty() && arguments.front() == kAgentArgument) {
      return run_agent(descriptor_in(arguments));
    }
    if (!arguments.empty() && arguments.front() == kRemoteAgentArgument) {
      return run_remote_agent(descriptor_in(arguments));
    }
    if (!arguments.empty() && arguments.front() == kAttachedArgument) return run_attached();
    if (!arguments.empty() && arguments.front() == "status") return print_status(arguments);
    return launch(arguments);
  } catch (const LaunchError& error) {
    return complain(error.code(), error.what());
  } catch (const hvd::Error& error) {
    return complain(exit_code(error), error.what());
  } catch (const std::exception& error) {
    return complain(kExitInternal, error.what());
  }
}
