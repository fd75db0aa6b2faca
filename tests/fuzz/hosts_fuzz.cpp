// Parses host lists, hostfiles, Slurm's lists, lists of CPUs and the kernel's list of sockets, in
// which any user of the host has names.
#include "base/exit_codes.hpp"
#include "check.hpp"
#include "plan/cpu_list.hpp"
#include "plan/hosts.hpp"
#include "plan/slurm.hpp"
#include "status/status_socket.hpp"

namespace {

using namespace hvd::launcher;
using hvd::is_host_name;
using hvd::fuzz::check;

/// Names become words of a command, so none may look like an option or contain other characters
/// than a name.
void check_hosts(const std::vector<HostSpec>& hosts) {
  for (const HostSpec& host : hosts) {
    check(!host.name.empty() && host.name.front() != '-' && host.slots >= 1);
    check(is_host_name(host.name) || host.name.find(':') != std::string::npos);
    check(host.name.find_first_of(" \t\n;&|$`'\"\\<>(){}*?!~#/") == std::string::npos);
    check(host.user.empty() || is_user_name(host.user));
  }
}

template <class Parse>
void only_usage_errors(Parse parse) {
  try {
    parse();
  } catch (const LaunchError& error) {
    check(error.code() == kExitUsage);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  only_usage_errors([&] { check_hosts(parse_hosts(text)); });
  only_usage_errors([&] { check_hosts(parse_hostfile(text, "f")); });
  only_usage_errors([&] { check_hosts(parse_discovered_hosts(text, 2)); });
  only_usage_errors([&] {
    for (const std::string& name : expand_nodelist(text)) check(is_host_name(name));
  });
  only_usage_errors([&] { static_cast<void>(expand_counts(text)); });
  if (const auto cpus = parse_cpu_list(text)) check(parse_cpu_list(cpu_list(*cpus)) == cpus);
  for (const std::string& job : parse_jobs(text, 0)) {
    check(job.find('\n') == std::string::npos && text.find("hvd-status-0-" + job) != text.npos);
  }
  return 0;
}
