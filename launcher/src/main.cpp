// hvdrun: starts the ranks of a job, watches them and ends them together.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/version.hpp>

#include "agent_link.hpp"
#include "check_build.hpp"
#include "descriptors.hpp"
#include "dry_run.hpp"
#include "exit_codes.hpp"
#include "generate.hpp"
#include "job.hpp"
#include "launcher_choice.hpp"
#include "machine.hpp"
#include "mpirun_command.hpp"
#include "node_mode.hpp"
#include "options.hpp"
#include "own_environment.hpp"
#include "plan.hpp"
#include "program.hpp"
#include "rank_environment.hpp"
#include "status_socket.hpp"
#include "this_host.hpp"

namespace {

using namespace hvd::launcher;

/// mpirun would say the same at length, and exits with a code of its own.
void check_program(const Options& options, const Plan& plan) {
  const bool here = std::any_of(plan.hosts.begin(), plan.hosts.end(),
                                [](const HostSpec& host) { return is_this_host(host.name); });
  const Variables variables =
      merge(own_environment(), exported_variables(options.exports, own_environment()));
  if (here) (void)find_program(options.program.front(), value_of(variables, "PATH"));
}

std::unique_ptr<Job> make_job(const Options& options, const Plan& plan) {
  if (options.launcher != Launcher::mpirun) return std::make_unique<Job>(options, plan);
  return std::make_unique<Job>(options, plan, mpirun_command(options, plan, own_environment()));
}

/// Every try has agents, a store, a secret and a restart count of its own: what is left of an
/// earlier one, should there be anything, cannot join.
int run_with_restarts(Options options, const Plan& plan) {
  for (;; ++options.restart_count) {
    const auto job = make_job(options, plan);
    const int code = job->run();
    if (!job->lost_a_rank() || options.restart_count >= options.max_restarts) return code;
    fmt::print(stderr, "hvdrun: restart {} of {}\n", options.restart_count + 1,
               options.max_restarts);
  }
}

/// "status [JOB]"
int print_status(const std::vector<std::string>& arguments) {
  if (arguments.size() > 2) throw LaunchError(kExitUsage, "expected: hvdrun status [JOB]");
  fmt::print("{}", ask_status(arguments.size() == 2 ? arguments[1] : ""));
  return 0;
}

int launch(const std::vector<std::string>& arguments) {
  Options options = parse_options(arguments, own_environment());
  if (options.help) {
    fmt::print("{}", help_text());
    return 0;
  }
  if (!options.generate.empty()) {
    fmt::print("{}", options.generate == "bash"
                         ? bash_completion(list_options())
                         : man_page(list_options(), std::string(hvd::version())));
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
  Choice choice = choose_launcher(options, own_environment());
  options.launcher = choice.launcher;
  const Plan plan = plan_ranks(choice.hosts, options.num_proc);
  if (options.dry_run) {
    fmt::print("{}", dry_run(options, plan));
    return 0;
  }
  if (options.launcher == Launcher::mpirun) check_program(options, plan);
  return run_with_restarts(std::move(options), plan);
}

/// "--agent [descriptor]", as `local_agent` has it.
int run_as_agent(const std::vector<std::string>& arguments) {
  return run_agent(arguments.size() > 1 ? std::stoi(arguments[1]) : -1);
}

int complain(int code, const char* what) {
  fmt::print(stderr, "hvdrun: {}\n", what);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    fill_standard_descriptors();
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (!arguments.empty() && arguments.front() == kAgentArgument) return run_as_agent(arguments);
    if (!arguments.empty() && arguments.front() == kRemoteAgentArgument) return run_remote_agent();
    if (!arguments.empty() && arguments.front() == "status") return print_status(arguments);
    return launch(arguments);
  } catch (const LaunchError& error) {
    return complain(error.code(), error.what());
  } catch (const hvd::Error& error) {
    const auto code = error.code();
    return complain(code == hvd::Errc::resource           ? kExitResource
                    : code == hvd::Errc::invalid_argument ? kExitUsage
                                                          : kExitInternal,
                    error.what());
  } catch (const std::exception& error) {
    return complain(kExitInternal, error.what());
  }
}
