// hvdrun: starts the ranks of a job, watches them and ends them together.
#include <cstdio>
#include <exception>
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
#include "job.hpp"
#include "options.hpp"
#include "plan.hpp"
#include "text.hpp"
#include "this_host.hpp"

namespace {

using namespace hvd::launcher;

std::vector<HostSpec> hosts_of(const Options& options) {
  if (!options.hosts.empty()) return parse_hosts(options.hosts);
  return {{.name = "localhost", .slots = options.num_proc}};
}

void require_this_host(const Plan& plan) {
  for (const HostSpec& host : plan.hosts) {
    if (is_this_host(host.name)) continue;
    throw LaunchError(kExitHostUnreachable,
                      fmt::format("host {} is not this host: hvdrun starts ranks on this host only",
                                  in_quotes(host.name)));
  }
}

int launch(const std::vector<std::string>& arguments) {
  Options options = parse_options(arguments);
  if (options.help) {
    fmt::print("{}", help_text());
    return 0;
  }
  if (options.version) {
    fmt::print("hvdrun {}\n", hvd::version());
    return 0;
  }
  if (options.check_build) {
    fmt::print("{}", build_table(read_build_record()));
    return 0;
  }
  Plan plan = plan_ranks(hosts_of(options), options.num_proc);
  if (options.dry_run) {
    fmt::print("{}", dry_run(options, plan));
    return 0;
  }
  require_this_host(plan);
  return Job(std::move(options), std::move(plan)).run();
}

/// "--agent [descriptor]", as AgentLink starts it.
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
