#include "supervise/guard.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit_codes.hpp"
#include "base/signals.hpp"
#include "base/text.hpp"
#include "supervise/descendants.hpp"

namespace hvd::launcher {
namespace {

[[noreturn]] void run_child(const std::function<int()>& work, pid_t guard,
                            std::string_view prefix) {
  int code = kExitInternal;
  try {
    const bool tied = ::prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && ::getppid() == guard;
    if (tied) code = work();
  } catch (const LaunchError& error) {
    code = error.code();
    fmt::print(stderr, "{}{}\n", prefix, error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}{}\n", prefix, error.what());
  }
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace

int run_guarded(const std::function<int()>& work, std::string_view prefix) {
  become_subreaper();
  sigset_t awaited;
  ::sigemptyset(&awaited);
  ::sigaddset(&awaited, SIGCHLD);
  for (const int signal : kForwardedSignals) {
    if (!is_ignored(signal)) ::sigaddset(&awaited, signal);
  }
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &awaited, &before);
  const pid_t guard = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) refuse_system("cannot start");
  if (child == 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    run_child(work, guard, prefix);
  }
  int status = 0;
  for (int signal = 0;;) {
    if (::sigwait(&awaited, &signal) != 0) continue;
    if (signal != SIGCHLD) {
      ::kill(child, signal);
    } else if (::waitpid(child, &status, WNOHANG) == child) {
      break;
    }
  }
  (void)kill_descendants([](pid_t, int) {}, Clock::now() + kKillDeadline);
  return status;
}

}  // namespace hvd::launcher
