// Reads the job that another program, such as a Spark driver, describes to hvdrun as JSON.
#include <sstream>

// The reader is private to this file.
#include "check.hpp"
#include "job/attached_job.cpp"  // NOLINT(bugprone-suspicious-include)

using namespace hvd::launcher;
using hvd::fuzz::check;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // These are the descriptors that a job may name.
  const hvd::UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int inherited = 20; inherited < 24; ++inherited) ::dup2(nothing.get(), inherited);
  std::istringstream text(std::string(reinterpret_cast<const char*>(data), size));
  std::streambuf* const own = std::cin.rdbuf(text.rdbuf());
  try {
    const Description job = read_description();
    check(!job.hosts.empty() && job.outcome);
    check(job.machines.size() == job.hosts.size() && job.streams.size() == job.hosts.size());
    for (const HostSpec& host : job.hosts) check(host.slots >= 1);
    for (const hvd::UniqueFd& stream : job.streams) check(stream.get() > STDERR_FILENO);
  } catch (const LaunchError& error) {
    check(error.code() == kExitUsage);
  }
  std::cin.rdbuf(own);
  return 0;
}
