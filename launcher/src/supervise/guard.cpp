#include "supervise/guard.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <vector>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit_codes.hpp"
#include "base/signals.hpp"
#include "base/text.hpp"
#include "supervise/descendants.hpp"
#include "supervise/job_policy.hpp"

namespace hvd::launcher {
namespace {

[[noreturn]] void run_child(const std::function<int(pid_t)>& work, pid_t guard,
                            GuardSignals signals) {
  // hvdrun itself puts "hvdrun: HOST: " in front of the output of an agent that ssh has started.
  const char* const prefix = signals == GuardSignals::pass_on ? "hvdrun: " : "";
  int code = kExitInternal;
  try {
    if (signals == GuardSignals::pass_on) ::setsid();
    const bool tied = ::prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && ::getppid() == guard;
    if (tied) code = work(guard);
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

int run_guarded(const std::function<int(pid_t guard)>& work, GuardSignals signals) {
  become_subreaper();
  std::vector<int> passed_on;
  sigset_t awaited;
  ::sigemptyset(&awaited);
  ::sigaddset(&awaited, SIGCHLD);
  if (signals == GuardSignals::pass_on) {
    for (const int signal : kForwardedSignals) {
      if (is_ignored(signal)) continue;
      passed_on.push_back(signal);
      ::sigaddset(&awaited, signal);
    }
  }
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &awaited, &before);
  const pid_t guard = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) refuse_system("cannot start");
  if (child == 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    run_child(work, guard, signals);
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
  if (WIFSIGNALED(status) && signals == GuardSignals::pass_on) {
    const int signal = WTERMSIG(status);
    if (std::find(passed_on.begin(), passed_on.end(), signal) == passed_on.end()) {
      throw LaunchError(kExitHostUnreachable, fmt::format("the agent of this node was killed by {}",
                                                          signal_name(signal)));
    }
    fmt::print(stderr, "hvdrun: {}\n", received_signal(signal));
  }
  return exit_code(status);
}

}  // namespace hvd::launcher
