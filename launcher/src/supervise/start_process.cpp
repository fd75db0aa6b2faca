#include "supervise/start_process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/internal/fd.hpp>

#include "base/descriptors.hpp"
#include "base/exit_codes.hpp"
#include "base/signals.hpp"
#include "base/text.hpp"

namespace hvd::launcher {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

/// An affinity mask of any size, made before the fork.
class AffinityMask {
 public:
  explicit AffinityMask(const Cpus& cpus) {
    for (const int cpu : cpus) {
      const auto word = static_cast<std::size_t>(cpu) / kBits;
      if (words_.size() <= word) words_.resize(word + 1);
      words_[word] |= 1UL << (static_cast<std::size_t>(cpu) % kBits);
    }
  }

  /// Binds the calling thread. The kernel refuses a mask only when it has taken all of these CPUs
  /// away meanwhile, and then the thread stays where it is. Async-signal-safe.
  void apply() const {
    if (words_.empty()) return;
    ::sched_setaffinity(0, words_.size() * sizeof(unsigned long),
                        reinterpret_cast<const cpu_set_t*>(words_.data()));
  }

 private:
  static constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> words_;
};

// The functions down to execve make only async-signal-safe calls, because other threads of the
// parent may have held locks at the fork.

void default_signals() {
  struct sigaction action {};
  for (int signal = 1; signal < NSIG; ++signal) {
    if (::sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_IGN && signal != SIGPIPE) continue;
    action.sa_handler = SIG_DFL;
    action.sa_flags = 0;
    ::sigaction(signal, &action, nullptr);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

/// Makes the three descriptors 0, 1 and 2. They may have these numbers already in another order, so
/// they are first duplicated to higher ones.
bool place_descriptors(const StartRequest& request) {
  std::array<int, 3> from = {request.input, request.output, request.error};
  for (int& fd : from) {
    fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0) return false;
  }
  for (int target = 0; target < 3; ++target) {
    if (::dup2(from[static_cast<std::size_t>(target)], target) < 0) return false;
  }
  return true;
}

[[noreturn]] void run_child(const StartRequest& request, char* const* arguments,
                            char* const* variables, const AffinityMask& mask, pid_t parent,
                            int report) {
  const bool grouped =
      request.new_session ? ::setsid() >= 0 : !request.own_group || ::setpgid(0, 0) == 0;
  bool ready = grouped && place_descriptors(request);
  if (ready && request.die_with_parent) {
    ready = ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
    if (::getppid() != parent) ::_exit(kExitInternal);  // it died before the call above
  }
  if (ready) {
    restore_descriptor_limit();
    default_signals();
    mask.apply();
    for (const int fd : request.inherited) ::fcntl(fd, F_SETFD, 0);
    ::execve(request.path.c_str(), arguments, variables);
  }
  const int reason = errno;
  [[maybe_unused]] const ssize_t written = ::write(report, &reason, sizeof reason);
  ::_exit(kExitNotExecutable);
}

/// Returns 0, or the errno that says why `path` cannot be executed.
int why_not(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if (!S_ISREG(status.st_mode)) return EACCES;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

/// Throws the LaunchError for a file that cannot be executed. `what` is the program's name in
/// quotes.
[[noreturn]] void refuse_file(const std::string& what, int reason) {
  throw LaunchError(kExitNotExecutable,
                    fmt::format("{}: cannot be executed: {}", what, error_text(reason)));
}

[[noreturn]] void refuse(const std::string& name, int reason) {
  if (reason == ENOENT || reason == ENOTDIR) {
    throw LaunchError(kExitNotFound, fmt::format("{}: program not found", in_quotes(name)));
  }
  refuse_file(in_quotes(name), reason);
}

[[noreturn]] void refuse_start(const StartRequest& request, int reason) {
  const std::string name = in_quotes(request.arguments.front());
  switch (reason) {
    case EAGAIN:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      errno = reason;
      refuse_system(fmt::format("cannot start {}", name));
    case ENOENT:  // the file exists, so the interpreter of a script is missing
      throw LaunchError(kExitNotFound,
                        fmt::format("{}: it or its interpreter was not found", name));
    default:
      refuse_file(name, reason);
  }
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
    // Like a shell, this reports a file that exists and cannot be executed, unless a later one can.
    if (here != ENOENT && here != ENOTDIR && here != EISDIR && reason == ENOENT) reason = here;
    begin = end + 1;
  }
  refuse(name, reason);
}

pid_t start_process(const StartRequest& request) {
  const auto arguments = pointers(request.arguments);
  const auto variables = pointers(request.variables);
  const AffinityMask mask(request.cpus);
  Pipe report = make_pipe();
  const pid_t parent = ::getpid();
  pid_t child = -1;
  int fork_error = 0;
  {
    const BlockSignals blocked;  // until the child has reset the handlers that it inherits
    child = ::fork();
    if (child == 0) {
      run_child(request, arguments.data(), variables.data(), mask, parent, report.write.get());
    }
    fork_error = errno;
  }
  if (child < 0) refuse_start(request, fork_error);

  // The write end closes when the program is executed. Then there is nothing to read.
  report.write.reset();
  int reason = 0;
  ssize_t size = 0;
  do {
    size = ::read(report.read.get(), &reason, sizeof reason);
  } while (size < 0 && errno == EINTR);
  if (size != sizeof reason) return child;
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  refuse_start(request, reason);
}

}  // namespace hvd::launcher
