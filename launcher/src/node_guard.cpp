#include "node_guard.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <vector>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/types.hpp>

#include "descendants.hpp"
#include "exit_codes.hpp"
#include "job_policy.hpp"
#include "text.hpp"

namespace hvd::launcher {
namespace {

constexpr std::chrono::milliseconds kKillDeadline{2'000};

/// One that was ignored when hvdrun started (nohup) stays ignored.
bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

[[noreturn]] void run_child(const std::function<int(pid_t)>& work, pid_t guard) {
  int code = kExitInternal;
  try {
    ::setsid();
    const bool tied = ::prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && ::getppid() == guard;
    if (tied) code = work(guard);
  } catch (const LaunchError& error) {
    code = error.code();
    fmt::print(stderr, "hvdrun: {}\n", error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "hvdrun: {}\n", error.what());
  }
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace

int run_below_guard(const std::function<int(pid_t guard)>& work) {
  become_subreaper();
  std::vector<int> passed_on;
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    if (is_ignored(signal)) continue;
    passed_on.push_back(signal);
    ::sigaddset(&set, signal);
  }
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &set, &before);
  const pid_t guard = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    throw LaunchError(kExitResource, fmt::format("cannot start: {}", error_text(errno)));
  }
  if (child == 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    run_child(work, guard);
  }
  int status = 0;
  for (int signal = 0;;) {
    if (::sigwait(&set, &signal) != 0) continue;
    if (signal != SIGCHLD) {
      ::kill(child, signal);
    } else if (::waitpid(child, &status, WNOHANG) == child) {
      break;
    }
  }
  (void)kill_descendants([](pid_t, int) {}, Clock::now() + kKillDeadline);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int killer = WTERMSIG(status);
  if (std::find(passed_on.begin(), passed_on.end(), killer) != passed_on.end()) {
    return exit_code(status);
  }
  throw LaunchError(kExitHostUnreachable,
                    fmt::format("the agent of this node was killed by {}", signal_name(killer)));
}

}  // namespace hvd::launcher
