#include "spawn_processes.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "block_signals.hpp"
#include "descriptors.hpp"
#include "exit_codes.hpp"
#include "program.hpp"
#include "spawn.hpp"
#include "spawn_journal.hpp"
#include "text.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

/// The policy's name for an end that a process thinks was in order and its parent does not.
constexpr int kNoResult = 1 << 8;

/// As they were typed.
std::vector<std::string> own_arguments() {
  std::vector<std::string> arguments;
  std::ostringstream line;
  line << std::ifstream("/proc/self/cmdline").rdbuf();
  const std::string text = line.str();
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\0', begin), text.size());
    arguments.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (arguments.empty()) arguments.emplace_back("hvd::spawn");
  return arguments;
}

}  // namespace

SpawnProcesses::SpawnProcesses(int nprocs, const SpawnOptions& options, SpawnPath path)
    : nprocs_(nprocs),
      options_(options),
      path_(std::move(path)),
      policy_(std::max(nprocs, 1), JobPolicy::kFailureGrace),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw Error(Errc::resource, fmt::format("eventfd: {}", error_text(errno)));
  if (options_.timeout > milliseconds{0}) timeout_at_ = start_ + options_.timeout;
  {
    const BlockSignals blocked;  // they are for the program's threads
    thread_ = std::thread([this] { run(); });
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_ || over_; });
  if (!failure_) return;
  lock.unlock();
  thread_.join();
  throw Error(*failure_);
}

SpawnProcesses::~SpawnProcesses() {
  if (!thread_.joinable()) return;
  terminate();
  thread_.join();
}

bool SpawnProcesses::wait_until(std::optional<Deadline> deadline) {
  std::unique_lock lock(mutex_);
  const auto over = [this] { return over_; };
  if (deadline) return changed_.wait_until(lock, *deadline, over);
  changed_.wait(lock, over);
  return true;
}

void SpawnProcesses::terminate() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void SpawnProcesses::run() {
  std::optional<Error> failure;
  try {
    start_all();
    watch();
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {  // LaunchError: the system refused something
    failure = Error(Errc::resource, fmt::format("hvd::spawn: {}", error.what()));
  }
  if (failure) {
    signal_all(SIGKILL);
    for (Process& process : processes_) {
      while (process.running && ::waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
  output_.reset();  // all that was written comes before the call returns
  place_.reset();
  const std::lock_guard lock(mutex_);
  if (failure && started_) {
    outcome_.kind = SpawnOutcome::Kind::error;
    outcome_.code = failure->code();
    outcome_.text = failure->what();
  } else {
    failure_ = std::move(failure);
  }
  over_ = true;
  changed_.notify_all();
}

void SpawnProcesses::start_all() {
  place_.emplace(nprocs_, options_, path_.back().call);
  output_.emplace(options_, place_->first_rank(), nprocs_);
  processes_.reserve(static_cast<std::size_t>(nprocs_));
  for (int local_rank = 0; local_rank < nprocs_; ++local_rank) start_one(local_rank);
  output_->start();
  const std::lock_guard lock(mutex_);
  for (const Process& process : processes_) pids_.push_back(process.pid);
  started_ = true;
  changed_.notify_all();
}

void SpawnProcesses::start_one(int local_rank) {
  Process process;
  process.rank = place_->first_rank() + local_rank;
  path_.back().rank = process.rank;
  process.report_file = make_memory_file("hvd-spawn-report", {});
  const UniqueFd state = make_memory_file("hvd-spawn-state", encode(path_));
  const UniqueFd null = open_null();
  Variables variables = place_->variables(local_rank);
  variables = merge(variables, {fmt::format("{}={}:{}:{}", kSpawnVariable, ::getpid(), state.get(),
                                            process.report_file.get())});
  process.pid = launcher::spawn({.path = "/proc/self/exe",
                                 .arguments = own_arguments(),
                                 .variables = std::move(variables),
                                 .input = null.get(),
                                 .output = output_->descriptor(Stream::out, local_rank),
                                 .error = output_->descriptor(Stream::err, local_rank),
                                 .own_group = false,  // Ctrl-C is for all
                                 .inherited = {state.get(), process.report_file.get()},
                                 .die_with_parent = true});
  processes_.push_back(std::move(process));
  processes_.back().ended = open_pidfd(processes_.back().pid);
}

// ---- watching

bool SpawnProcesses::any_running() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const Process& process) { return process.running; });
}

void SpawnProcesses::watch() {
  while (any_running()) {
    wait_for_something();
    const auto now = Clock::now();
    order(policy_.on_time(now));
    if (timeout_at_ && now >= *timeout_at_) {
      timeout_at_.reset();
      order(policy_.on_trouble(
          kExitDeadline, fmt::format("hvd::spawn: the processes were not over after {:.1f} s",
                                     std::chrono::duration<double>(options_.timeout).count())));
    }
    if (kill_at_ && now >= *kill_at_) {
      kill_at_.reset();
      signal_all(SIGKILL);
    }
  }
  outcome_ = make_outcome();
}

void SpawnProcesses::wait_for_something() {
  std::vector<pollfd> fds = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  std::vector<Process*> watched;
  for (Process& process : processes_) {
    if (!process.running) continue;
    fds.push_back({.fd = process.ended.get(), .events = POLLIN, .revents = 0});
    watched.push_back(&process);
  }
  int wait = -1;
  for (const auto& due : {policy_.wake_up(), kill_at_, timeout_at_}) {
    if (!due) continue;
    const auto left = std::chrono::ceil<milliseconds>(*due - Clock::now());
    constexpr milliseconds kLongest{60'000};
    const auto bounded = static_cast<int>(std::clamp(left, milliseconds{0}, kLongest).count());
    wait = wait < 0 ? bounded : std::min(wait, bounded);
  }
  if (::poll(fds.data(), fds.size(), wait) <= 0) return;
  for (std::size_t i = 0; i < watched.size(); ++i) {
    if (fds[i + 1].revents != 0) reap(*watched[i]);
  }
  if (fds[0].revents == 0) return;
  std::uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t size = ::read(wake_.get(), &ignored, sizeof ignored);
  order(policy_.on_trouble(kExitSignalBase + SIGTERM, "hvd::spawn: the processes were terminated"));
}

void SpawnProcesses::reap(Process& process) {
  const pid_t pid = ::waitpid(process.pid, &process.status, WNOHANG);
  if (pid == 0) return;
  if (pid < 0) process.status = 0;  // the program waits for children itself: the report decides
  process.running = false;
  process.report = read_report(process.report_file.get());
  process.report_file.reset();
  const bool returned = process.report.stage == SpawnReport::Stage::returned;
  const int status = process.status == 0 && !returned ? kNoResult : process.status;
  const auto now = Clock::now();
  order(policy_.on_exit({.rank = process.rank,
                         .status = status,
                         .elapsed = std::chrono::duration_cast<milliseconds>(now - start_)},
                        now));
}

void SpawnProcesses::order(const std::optional<End>& end) {
  if (!end) return;
  signal_all(end->signal);
  kill_at_ = Clock::now() + end->grace;
}

void SpawnProcesses::signal_all(int signal) noexcept {
  for (const Process& process : processes_) {
    if (!process.running) continue;
    ::kill(process.pid, signal);
    if (signal != SIGKILL) ::kill(process.pid, SIGCONT);  // a stopped one acts when it goes on
  }
}

// ---- the end

SpawnOutcome SpawnProcesses::make_outcome() {
  SpawnOutcome outcome;
  outcome.pids = pids_;
  const Outcome verdict = policy_.outcome();
  if (verdict.culprit) {
    const auto& culprit =
        processes_.at(static_cast<std::size_t>(verdict.culprit->rank - place_->first_rank()));
    outcome.kind = SpawnOutcome::Kind::process_error;
    outcome.end = describe(culprit);
  } else if (!verdict.trouble.empty()) {
    outcome.kind = SpawnOutcome::Kind::error;
    outcome.code = verdict.code == kExitDeadline ? Errc::timeout : Errc::aborted;
    outcome.text = verdict.trouble;
  } else {
    outcome.kind = SpawnOutcome::Kind::results;
    for (Process& process : processes_) outcome.results.push_back(std::move(process.report.value));
  }
  return outcome;
}

ProcessError::End SpawnProcesses::describe(const Process& process) const {
  ProcessError::End end{.rank = process.rank, .pid = process.pid, .text = process.report.text};
  if (WIFSIGNALED(process.status)) {
    end.signal = WTERMSIG(process.status);
    return end;
  }
  end.exit_code = WEXITSTATUS(process.status);
  if (end.text.empty() && end.exit_code == 0) {
    end.text = process.report.stage == SpawnReport::Stage::before
                   ? "exited 0 before it came to its call of hvd::spawn again"
                   : "exited 0 before its function returned";
  }
  return end;
}

}  // namespace hvd::launcher
