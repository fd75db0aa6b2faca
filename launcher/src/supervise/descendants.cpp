#include "supervise/descendants.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/internal/text.hpp>

#include "base/text.hpp"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

/// Returns the fourth field of /proc/PID/stat. The second, in parentheses, may contain anything.
pid_t parent_of(const fs::path& process) {
  const std::string stat = read_file(process / "stat");
  const auto close = stat.rfind(')');
  if (close == std::string::npos) return 0;
  std::istringstream fields(stat.substr(close + 1));
  std::string state;
  pid_t parent = 0;
  fields >> state >> parent;
  return parent;
}

/// Finds the children of a process where the kernel does not list them.
std::vector<pid_t> children_by_search(pid_t parent) {
  std::vector<pid_t> children;
  std::error_code ended;
  for (fs::directory_iterator it("/proc", ended), end; !ended && it != end; it.increment(ended)) {
    const auto pid = detail::to_number<pid_t>(it->path().filename().string());
    if (pid && parent_of(it->path()) == parent) children.push_back(*pid);
  }
  return children;
}

/// Waits for SIGCHLD, which must be blocked, or for `deadline`.
void wait_for_child(const sigset_t& child_signal, Deadline deadline) {
  using namespace std::chrono;
  const auto left = std::max(duration_cast<nanoseconds>(deadline - Clock::now()), nanoseconds{0});
  const auto whole = duration_cast<seconds>(left);
  const timespec timeout{.tv_sec = static_cast<time_t>(whole.count()),
                         .tv_nsec = static_cast<long>((left - whole).count())};
  ::sigtimedwait(&child_signal, nullptr, &timeout);
}

/// Returns the value of a variable in the text of /proc/PID/environ.
std::string value_in(std::string_view environment, std::string_view variable) {
  for (const std::string_view entry : detail::split_at(environment, '\0')) {
    if (entry.size() > variable.size() && entry.starts_with(variable) &&
        entry[variable.size()] == '=') {
      return std::string(entry.substr(variable.size() + 1));
    }
  }
  return {};
}

std::string environment_of(pid_t pid) { return read_file(fmt::format("/proc/{}/environ", pid)); }

/// Returns whether the child has ended, without waiting for it.
bool has_ended(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid == child;
}

}  // namespace

void become_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) refuse_system("cannot adopt orphans");
}

std::vector<pid_t> children_of(pid_t parent) {
  const fs::path tasks = fmt::format("/proc/{}/task", parent);
  std::vector<pid_t> children;
  std::error_code ended;
  for (fs::directory_iterator it(tasks, ended), end; !ended && it != end; it.increment(ended)) {
    std::ifstream list(it->path() / "children");
    if (!list) {
      if (fs::exists("/proc/self/task/" + std::to_string(::getpid()) + "/children")) continue;
      return children_by_search(parent);
    }
    for (pid_t pid = 0; list >> pid;) children.push_back(pid);
  }
  return children;
}

std::vector<pid_t> descendants_of(pid_t ancestor) {
  std::vector<pid_t> all = children_of(ancestor);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const pid_t child : children_of(all[i])) all.push_back(child);
  }
  return all;
}

std::optional<std::string> variable_of(pid_t pid, std::string_view variable) {
  const std::string environment = environment_of(pid);
  if (environment.empty()) return std::nullopt;
  return value_in(environment, variable);
}

bool kill_descendants(const std::function<void(pid_t, int)>& on_reaped, Deadline deadline) {
  sigset_t child_signal;
  sigset_t before;
  ::sigemptyset(&child_signal);
  ::sigaddset(&child_signal, SIGCHLD);
  ::pthread_sigmask(SIG_BLOCK, &child_signal, &before);
  bool gone = false;
  // Each round kills all descendants that it finds. A process that was forked meanwhile is still a
  // descendant and is killed in the next round, which begins when its parent has ended.
  for (;;) {
    for (const pid_t pid : descendants_of(::getpid())) ::kill(pid, SIGKILL);
    int status = 0;
    pid_t pid = 0;
    while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) on_reaped(pid, status);
    gone = pid < 0 && errno == ECHILD;
    if (gone || Clock::now() >= deadline) break;
    wait_for_child(child_signal, deadline);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return gone;
}

void kill_strays(std::string_view job_id, Deadline deadline) {
  std::set<pid_t> ended;
  while (Clock::now() < deadline) {
    std::vector<pid_t> killed;
    bool unclear = false;
    for (const pid_t pid : children_of(::getpid())) {
      const std::string environment = environment_of(pid);
      if (environment.empty()) {
        // The process is about to execute a program or to end, or has ended since the list was
        // read. Its children are in the list only after its end.
        unclear = !has_ended(pid) || ended.insert(pid).second || unclear;
        continue;
      }
      if (value_in(environment, "HVD_JOB_ID") != job_id) continue;
      killed.push_back(pid);
      ::kill(pid, SIGKILL);
    }
    if (killed.empty() && !unclear) return;
    if (killed.empty()) ::poll(nullptr, 0, 1);
    // This process may have no descriptor left, so it does not wait for them with one.
    for (const pid_t pid : killed) {
      while (::waitpid(pid, nullptr, WNOHANG) == 0 && Clock::now() < deadline) {
        ::poll(nullptr, 0, 1);
      }
    }
  }
}

}  // namespace hvd::launcher
