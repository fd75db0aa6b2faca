#include "agent_guard.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/types.hpp>

#include "descendants.hpp"
#include "exit_codes.hpp"
#include "job_policy.hpp"
#include "text.hpp"

namespace hvd::launcher {
namespace {

constexpr std::chrono::milliseconds kKillDeadline{2'000};

[[noreturn]] void run_child(const std::function<int()>& work, pid_t guard) {
  int code = kExitInternal;
  try {
    const bool tied = ::prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && ::getppid() == guard;
    if (tied) code = work();
  } catch (const LaunchError& error) {
    code = error.code();
    fmt::print(stderr, "{}\n", error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  ::_exit(code);
}

}  // namespace

int run_guarded(const std::function<int()>& work) {
  become_subreaper();
  const pid_t guard = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    throw LaunchError(kExitResource, fmt::format("cannot start: {}", error_text(errno)));
  }
  if (child == 0) run_child(work, guard);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  (void)kill_descendants([](pid_t, int) {}, Clock::now() + kKillDeadline);
  return exit_code(status);
}

}  // namespace hvd::launcher
