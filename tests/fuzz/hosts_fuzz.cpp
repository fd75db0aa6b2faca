// Host lists and files, Slurm's lists, and what mpirun writes.
#include "check.hpp"
#include "exit_codes.hpp"
#include "hosts.hpp"
#include "mpirun_output.hpp"
#include "slurm.hpp"

namespace {

using namespace hvd::launcher;
using hvd::fuzz::check;

/// Names become words of a command: none may be an option or contain anything but a name.
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
  only_usage_errors([&] {
    for (const std::string& name : expand_nodelist(text)) check(is_host_name(name));
  });
  only_usage_errors([&] { static_cast<void>(expand_counts(text)); });

  constexpr int kRanks = 4;
  for (const OpenMpi kind : {OpenMpi::none, OpenMpi::orte, OpenMpi::prrte}) {
    MpirunOutput output(kRanks, kind);
    auto pieces = output.feed(Stream::out, std::string_view(text).substr(0, size / 2));
    for (auto& piece : output.feed(Stream::out, std::string_view(text).substr(size / 2))) {
      pieces.push_back(std::move(piece));
    }
    for (const Output& piece : pieces) check(piece.rank >= 0 && piece.rank < kRanks);
    static_cast<void>(output.finish());
  }
  return 0;
}
