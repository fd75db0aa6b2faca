#include "ranks.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hvd::bounds {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTimedOut = 124;
constexpr int kFailed = 1;

int status_of(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

class Children {
 public:
  ~Children() {
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
  }
  void add(pid_t pid) { pids_.push_back(pid); }
  [[nodiscard]] bool empty() const { return pids_.empty(); }
  /// Removes ranks that have ended and returns the first status that is not 0.
  [[nodiscard]] int reap() {
    int status = 0;
    for (auto pid = pids_.begin(); pid != pids_.end();) {
      int wait_status = 0;
      if (::waitpid(*pid, &wait_status, WNOHANG) == *pid) {
        if (status == 0) status = status_of(wait_status);
        pid = pids_.erase(pid);
      } else {
        ++pid;
      }
    }
    return status;
  }

 private:
  std::vector<pid_t> pids_;
};

[[noreturn]] void be_rank(int rank, pid_t parent, const sigset_t& before,
                          const std::function<int(int rank)>& program) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kFailed);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  int status = kFailed;
  try {
    status = program(rank);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  std::fflush(nullptr);
  ::_exit(status);
}

int wait_for_all(Children& children, Clock::time_point deadline, const sigset_t& signals) {
  while (!children.empty()) {
    if (const int status = children.reap(); status != 0) return status;
    if (children.empty()) break;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return kTimedOut;
    const timespec timeout{static_cast<time_t>(left.count() / 1000),
                           static_cast<long>(left.count() % 1000 * 1'000'000)};
    const int signal = ::sigtimedwait(&signals, nullptr, &timeout);
    if (signal > 0 && signal != SIGCHLD) return 128 + signal;
  }
  return 0;
}

}  // namespace

int run_ranks(int count, std::chrono::seconds patience,
              const std::function<int(int rank)>& program) {
  const auto deadline = Clock::now() + patience;
  sigset_t signals;
  sigset_t before;
  sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  int status = 0;
  {
    Children children;
    const pid_t parent = ::getpid();
    for (int rank = 0; rank < count && status == 0; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) be_rank(rank, parent, before, program);
      if (pid < 0) {
        std::perror("fork");
        status = kFailed;
      } else {
        children.add(pid);
      }
    }
    if (status == 0) status = wait_for_all(children, deadline, signals);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace hvd::bounds
