// Implements the public part of hvd::spawn, in the parent and in the processes that it starts.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <typeinfo>
#include <utility>

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/text.hpp>
#include <hvd/spawn.hpp>

#include "base/text.hpp"
#include "spawn/spawn_journal.hpp"
#include "spawn/spawn_processes.hpp"

namespace hvd {

using launcher::SpawnJournal;
using launcher::SpawnOutcome;
using launcher::SpawnReport;

namespace {

std::string message_of(const ProcessError::End& end) {
  const std::string who = fmt::format("rank {} (pid {})", end.rank, end.pid);
  if (end.signal != 0) {
    return fmt::format("{} was killed by signal {} ({})", who, end.signal,
                       launcher::signal_name(end.signal));
  }
  if (end.text.empty()) return fmt::format("{} exited {}", who, end.exit_code);
  return fmt::format("{} {}{}", who, end.exit_code == 0 ? "" : "threw ", end.text);
}

std::string type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : type.name();
}

std::string thrown(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return fmt::format("{}: {}", type_name(typeid(error)), error.what());
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return type == nullptr ? "something" : type_name(*type);
  }
}

/// Ends this process, which has failed, at once, without exit handlers and destructors of static
/// objects. These are for a process that ends in order; they may, for example, leave the job.
[[noreturn]] void leave_failed(int report, const std::string& text) {
  constexpr int kFailed = 1;
  try {
    launcher::write_report(report, SpawnReport::Stage::threw, detail::bytes_of(text));
  } catch (const std::exception&) {
    // The exit code still reports the failure.
  }
  std::fflush(nullptr);
  ::_exit(kFailed);
}

/// Runs the function and ends the process, which was started for this call and must not run the
/// rest of the program. Nowhere else does the library end a process.
[[noreturn]] void run_function(const std::function<Bytes(int)>& body,
                               const SpawnJournal::Step& step, int report) {
  try {
    if (step.kind == SpawnJournal::Step::Kind::run) {
      launcher::write_report(report, SpawnReport::Stage::running, {});
    }
    const Bytes result = body(step.rank);
    if (step.kind == SpawnJournal::Step::Kind::pass) {
      leave_failed(report, fmt::format("the function of the outer hvd::spawn returned in a process "
                                       "that was started by a call inside it, without coming to "
                                       "that call again"));
    }
    launcher::write_report(report, SpawnReport::Stage::returned, result);
  } catch (...) {
    leave_failed(report, thrown(std::current_exception()));
  }
  std::exit(0);
}

[[noreturn]] void throw_outcome(const SpawnOutcome& outcome) {
  if (outcome.kind == SpawnOutcome::Kind::process_error) throw ProcessError(outcome.end);
  if (outcome.kind == SpawnOutcome::Kind::error) throw Error(outcome.code, outcome.text);
  throw Error(Errc::invalid_argument,
              "hvd::spawn: this call had not been joined when this process was started");
}

}  // namespace

ProcessError::ProcessError(End end) : std::runtime_error(message_of(end)), end_(std::move(end)) {}

bool spawn_is_ahead() { return SpawnJournal::own().ahead(); }

namespace detail {

struct SpawnCall::Impl {
  std::size_t index = 0;
  bool joined = false;
  std::optional<SpawnOutcome> replayed;  ///< the outcome, as it is recorded for later calls
  std::unique_ptr<launcher::SpawnProcesses> processes;

  bool wait_until(std::optional<Deadline> deadline) {
    if (!processes->wait_until(deadline)) return false;
    replayed = processes->outcome();
    SpawnJournal::own().record(index, *replayed);
    return true;
  }
};

SpawnCall::SpawnCall(const std::function<Bytes(int)>& body, int nprocs, SpawnOptions options,
                     SpawnSite site)
    : impl_(std::make_unique<Impl>()) {
  using Kind = SpawnJournal::Step::Kind;
  SpawnJournal& journal = SpawnJournal::own();
  SpawnJournal::Step step;
  try {
    step = journal.begin(site);
  } catch (const Error& error) {
    leave_failed(journal.report_fd(), error.what());
  }
  impl_->index = step.index;
  if (step.kind == Kind::run || step.kind == Kind::pass) {
    run_function(body, step, journal.report_fd());
  }
  if (step.kind == Kind::replay) {
    impl_->replayed = std::move(step.outcome);
    return;
  }
  try {
    impl_->processes =
        std::make_unique<launcher::SpawnProcesses>(nprocs, options, std::move(step.path));
  } catch (const Error& error) {
    SpawnOutcome outcome;
    outcome.kind = SpawnOutcome::Kind::error;
    outcome.code = error.code();
    outcome.text = error.what();
    journal.record(impl_->index, outcome);
    throw;
  }
}

SpawnCall::~SpawnCall() = default;
SpawnCall::SpawnCall(SpawnCall&&) noexcept = default;
SpawnCall& SpawnCall::operator=(SpawnCall&&) noexcept = default;

std::vector<Bytes> SpawnCall::join() {
  if (std::exchange(impl_->joined, true)) {
    throw Error(Errc::invalid_argument, "hvd::spawn: joined twice");
  }
  if (!impl_->replayed) static_cast<void>(impl_->wait_until(std::nullopt));
  if (impl_->replayed->kind != SpawnOutcome::Kind::results) throw_outcome(*impl_->replayed);
  return impl_->replayed->results;
}

bool SpawnCall::wait_until(Deadline deadline) {
  if (impl_->replayed) return impl_->replayed->kind != SpawnOutcome::Kind::open;
  return impl_->wait_until(deadline);
}

void SpawnCall::terminate() {
  if (impl_->processes) impl_->processes->terminate();
}

std::vector<pid_t> SpawnCall::pids() const {
  return impl_->processes ? impl_->processes->pids() : impl_->replayed->pids;
}

void check_result_size(std::size_t expected, std::size_t actual) {
  if (expected == actual) return;
  throw Error(Errc::protocol, fmt::format("hvd::spawn: a result of {} bytes where {} were expected",
                                          actual, expected));
}

}  // namespace detail
}  // namespace hvd
