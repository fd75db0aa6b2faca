// Reads and sums up the file of a timeline, as hvdtrace does.
#include <string>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.hpp"
#include "commands.hpp"
#include "trace_file.hpp"

using namespace hvd::trace;
using hvd::fuzz::check;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = ::memfd_create("trace", MFD_CLOEXEC);
  static const std::string path = fmt::format("/proc/self/fd/{}", file);
  check(::ftruncate(file, 0) == 0);
  check(::pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  try {
    check(!summarize({path}).empty());
  } catch (const TraceError& error) {
    check(error.code() == kExitData);
  }
  return 0;
}
