#include "program.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exit_codes.hpp"
#include "text.hpp"

namespace hvd::launcher {
namespace {

/// 0, or the errno that says why `path` cannot be executed.
int why_not(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if (!S_ISREG(status.st_mode)) return EACCES;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

[[noreturn]] void refuse(const std::string& name, int reason) {
  if (reason == ENOENT || reason == ENOTDIR) {
    throw LaunchError(kExitNotFound, fmt::format("{}: program not found", in_quotes(name)));
  }
  throw LaunchError(kExitNotExecutable,
                    fmt::format("{}: cannot be executed: {}", in_quotes(name), error_text(reason)));
}

}  // namespace

std::string find_program(const std::string& name, std::string_view search_path) {
  if (name.find('/') != std::string::npos) {
    const int reason = why_not(name);
    if (reason != 0) refuse(name, reason);
    return name;
  }
  int reason = ENOENT;
  for (std::size_t begin = 0; begin <= search_path.size();) {
    const auto end = std::min(search_path.find(':', begin), search_path.size());
    const auto directory = search_path.substr(begin, end - begin);
    const std::string path =
        fmt::format("{}/{}", directory.empty() ? std::string_view(".") : directory, name);
    const int here = why_not(path);
    if (here == 0) return path;
    // As a shell: a file that is there but cannot be run is what to tell when nothing better comes.
    if (here != ENOENT && here != ENOTDIR && here != EISDIR && reason == ENOENT) reason = here;
    begin = end + 1;
  }
  refuse(name, reason);
}

}  // namespace hvd::launcher
