#include "spawn/spawn_processes.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/internal/start_thread.hpp>
#include <hvd/core/internal/text.hpp>

#include "base/descriptors.hpp"
#include "base/exit_codes.hpp"
#include "base/signals.hpp"
#include "base/text.hpp"
#include "spawn/spawn_journal.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

/// The wait status of exit code 1. It counts for a process that exited 0 without a result.
constexpr int kNoResult = 1 << 8;

/// Returns the arguments of this process.
std::vector<std::string> own_arguments() {
  const std::string text = read_file("/proc/self/cmdline");
  const auto words = detail::split_at(text, '\0');
  std::vector<std::string> arguments(words.begin(), words.end());
  if (arguments.empty()) arguments.emplace_back("hvd::spawn");
  return arguments;
}

}  // namespace

SpawnProcesses::SpawnProcesses(int nprocs, const SpawnOptions& options, SpawnPath path)
    : nprocs_(nprocs),
      options_(options),
      path_(std::move(path)),
      work_(io_.get_executor()),
      ranks_(io_, Descendants::are_left_alone,
             {.on_exit = [this](std::size_t index, const RankEnd& end) { on_exit(index, end); },
              .on_output =
                  [this](std::size_t index, Stream stream, Bytes bytes) {
                    const std::size_t size = bytes.size();
                    output_->take(ranks_.rank(index), stream, std::move(bytes), [this, size] {
                      boost::asio::post(io_, [this, size] { ranks_.add_credit(size); });
                    });
                  },
              .on_gone = [] {},
              .on_done =
                  [this] {
                    supervisor_.stop();
                    work_.reset();
                  }}),
      supervisor_(io_, std::max(nprocs, 1), {.grace = JobPolicy::kFailureGrace},
                  [this](const End& order) { ranks_.end(order); }) {
  if (options_.timeout > milliseconds{0}) {
    supervisor_.limit(options_.timeout,
                      fmt::format("hvd::spawn: the processes were not over after {:.1f} s",
                                  std::chrono::duration<double>(options_.timeout).count()));
  }
  {
    const BlockSignals blocked;  // signals are left to the program's own threads
    thread_ = detail::start_thread("hvd-spawn", [this] { run(); });
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

void SpawnProcesses::terminate() {
  boost::asio::post(io_, [this] {
    supervisor_.on_trouble(kExitSignalBase + SIGTERM, "hvd::spawn: the processes were terminated");
  });
}

void SpawnProcesses::run() {
  std::optional<Error> failure;
  try {
    start_all();
    io_.run();
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {  // LaunchError: the system refused something
    failure = Error(Errc::resource, fmt::format("hvd::spawn: {}", error.what()));
  }
  if (failure) ranks_.abandon();
  output_.reset();  // the user's functions get all output before the call returns
  SpawnOutcome outcome;
  if (!failure) outcome = make_outcome();
  environment_.reset();
  const std::lock_guard lock(mutex_);
  outcome_ = std::move(outcome);
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
  environment_.emplace(nprocs_, options_, path_.back().call);
  output_.emplace(options_, environment_->first_rank() + nprocs_);
  processes_.reserve(static_cast<std::size_t>(nprocs_));
  for (int local_rank = 0; local_rank < nprocs_; ++local_rank) start_one(local_rank);
  ranks_.watch();
  const std::lock_guard lock(mutex_);
  for (std::size_t index = 0; index < ranks_.size(); ++index) pids_.push_back(ranks_.pid(index));
  started_ = true;
  changed_.notify_all();
}

void SpawnProcesses::start_one(int local_rank) {
  Process process;
  const int rank = environment_->first_rank() + local_rank;
  path_.back().rank = rank;
  process.report_file = make_memory_file("hvd-spawn-report", {});
  const UniqueFd state = make_memory_file("hvd-spawn-state", encode(path_));
  const UniqueFd null = open_null();
  Variables variables = environment_->variables(local_rank);
  variables = merge(variables, {fmt::format("{}={}:{}:{}", kSpawnVariable, ::getpid(), state.get(),
                                            process.report_file.get())});
  const int report = process.report_file.get();
  processes_.push_back(std::move(process));
  ranks_.start(rank, {.path = "/proc/self/exe",
                      .arguments = own_arguments(),
                      .variables = std::move(variables),
                      .input = null.get(),
                      .output = output_->takes(Stream::out) ? -1 : STDOUT_FILENO,
                      .error = output_->takes(Stream::err) ? -1 : STDERR_FILENO,
                      .own_group = false,  // so that Ctrl-C reaches all processes
                      .inherited = {state.get(), report},
                      .die_with_parent = true});
}

void SpawnProcesses::on_exit(std::size_t index, RankEnd end) {
  Process& process = processes_.at(index);
  process.status = end.status;
  process.report = read_report(process.report_file.get());
  process.report_file.reset();
  const bool returned = process.report.stage == SpawnReport::Stage::returned;
  if (end.status == 0 && !returned) end.status = kNoResult;
  end.without_shutdown = false;  // the call throws the error of a rank that misses this one
  supervisor_.on_exit(end);
}

// ---- the end

SpawnOutcome SpawnProcesses::make_outcome() {
  SpawnOutcome outcome;
  outcome.pids = pids_;
  const Outcome verdict = supervisor_.outcome();
  if (verdict.culprit) {
    outcome.kind = SpawnOutcome::Kind::process_error;
    outcome.end = describe(verdict.culprit->rank);
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

ProcessError::End SpawnProcesses::describe(int rank) const {
  const auto index = static_cast<std::size_t>(rank - environment_->first_rank());
  const Process& process = processes_.at(index);
  ProcessError::End end{.rank = rank, .pid = ranks_.pid(index), .text = process.report.text};
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
