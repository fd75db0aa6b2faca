#include "spawn.hpp"

#include <array>
#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/fd.hpp>

#include "block_signals.hpp"
#include "descriptors.hpp"
#include "exit_codes.hpp"
#include "text.hpp"

namespace hvd::launcher {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

// From here to execve only async-signal-safe calls: other threads of the parent may hold locks.

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

/// The three descriptors may overlap 0 to 2: they are moved out of the way first.
bool place_descriptors(const SpawnRequest& request) {
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

[[noreturn]] void run_child(const SpawnRequest& request, char* const* arguments,
                            char* const* variables, pid_t parent, int report) {
  const bool grouped =
      request.new_session ? ::setsid() >= 0 : !request.own_group || ::setpgid(0, 0) == 0;
  bool ready = grouped && place_descriptors(request);
  if (ready && request.die_with_parent) {
    ready = ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
    if (::getppid() != parent) ::_exit(kExitInternal);  // it died before the call above
  }
  if (ready) {
    if (request.limit != nullptr) request.limit->restore();
    default_signals();
    for (const int fd : request.inherited) ::fcntl(fd, F_SETFD, 0);
    ::execve(request.path.c_str(), arguments, variables);
  }
  const int reason = errno;
  [[maybe_unused]] const ssize_t written = ::write(report, &reason, sizeof reason);
  ::_exit(kExitNotExecutable);
}

[[noreturn]] void refuse(const SpawnRequest& request, int reason) {
  const auto text = error_text(reason);
  const std::string name = in_quotes(request.arguments.front());
  switch (reason) {
    case EAGAIN:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      throw LaunchError(kExitResource, fmt::format("cannot start {}: {}", name, text));
    case ENOENT:  // the file was there: what is missing is the interpreter of a script
      throw LaunchError(kExitNotFound,
                        fmt::format("{}: it or its interpreter was not found", name));
    default:
      throw LaunchError(kExitNotExecutable, fmt::format("{}: cannot be executed: {}", name, text));
  }
}

}  // namespace

pid_t spawn(const SpawnRequest& request) {
  const auto arguments = pointers(request.arguments);
  const auto variables = pointers(request.variables);
  Pipe report = make_pipe();
  const pid_t parent = ::getpid();
  pid_t child = -1;
  int fork_error = 0;
  {
    const BlockSignals blocked;  // all wait while the child still has this process's handlers
    child = ::fork();
    if (child == 0) {
      run_child(request, arguments.data(), variables.data(), parent, report.write.get());
    }
    fork_error = errno;
  }
  if (child < 0) refuse(request, fork_error);

  // The write end closes when the program is executed: then there is nothing to read.
  report.write.reset();
  int reason = 0;
  ssize_t size = 0;
  do {
    size = ::read(report.read.get(), &reason, sizeof reason);
  } while (size < 0 && errno == EINTR);
  if (size != sizeof reason) return child;
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  refuse(request, reason);
}

}  // namespace hvd::launcher
