#include "supervise/job_policy.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <sys/wait.h>

#include "base/exit_codes.hpp"
#include "base/text.hpp"

namespace hvd::launcher {
namespace {

/// Returns the signal that killed the program, also when a wrapper script reports it as 128 + N.
/// Returns 0 when no signal killed it.
int killing_signal(int status) {
  if (WIFSIGNALED(status)) return WTERMSIG(status);
  const int code = WEXITSTATUS(status);
  return code > kExitSignalBase && code < kExitSignalBase + NSIG ? code - kExitSignalBase : 0;
}

/// Returns whether the end of the rank is a cause in itself. A rank that was killed is a cause. A
/// rank that exits with an error soon after another was killed most likely fails because of that.
/// SIGABRT counts as such an error, because an uncaught exception ends with it.
bool is_strong(const RankEnd& end) {
  const int signal = killing_signal(end.status);
  return signal != 0 && signal != SIGABRT;
}

}  // namespace

bool JobPolicy::is_strong_cause(const Failure& cause) { return is_strong(cause.end); }

int exit_code(int status) noexcept {
  return WIFSIGNALED(status) ? kExitSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
}

JobPolicy::JobPolicy(int num_ranks, Options options)
    : running_(num_ranks), options_(std::move(options)) {}

std::optional<End> JobPolicy::on_exit(const RankEnd& ended, Clock::time_point now,
                                      Clock::time_point at) {
  --running_;
  if (phase_ == Phase::ending) {
    outcome_.ended.push_back(ended.rank);
    return std::nullopt;
  }
  const bool failed = exit_code(ended.status) != 0;
  if (failed || ended.without_shutdown) {
    const auto later = [](Clock::time_point time, const Failure& other) { return time < other.at; };
    causes_.insert(std::upper_bound(causes_.begin(), causes_.end(), at, later), {ended, at});
  }
  if (failed && phase_ == Phase::running) {
    phase_ = Phase::settling;
    settled_at_ = now + options_.settle;
  }
  if (phase_ == Phase::settling && running_ == 0) return on_time(settled_at_);
  return std::nullopt;
}

std::optional<End> JobPolicy::on_signal(int signal) {
  if (phase_ == Phase::ending) return end(SIGKILL, std::chrono::milliseconds{0});
  if (phase_ == Phase::settling) {
    blame();
  } else {
    outcome_.code = kExitSignalBase + signal;
    outcome_.trouble = fmt::format("received signal {} ({})", signal, signal_name(signal));
  }
  return end(signal, options_.grace);
}

std::optional<End> JobPolicy::on_trouble(int code, const std::string& what) {
  if (phase_ == Phase::ending) return std::nullopt;
  if (phase_ == Phase::settling) {
    blame();
  } else {
    outcome_.code = code;
    outcome_.trouble = what;
  }
  return end(SIGTERM, std::min(options_.grace, kFailureGrace));
}

std::optional<End> JobPolicy::on_loss(int code, const std::string& what) {
  if (phase_ == Phase::settling && std::none_of(causes_.begin(), causes_.end(), is_strong_cause)) {
    for (const Failure& cause : std::exchange(causes_, {})) outcome_.others.push_back(cause.end);
    phase_ = Phase::running;
  }
  return on_trouble(code, what);
}

std::optional<End> JobPolicy::on_time(Clock::time_point now) {
  if (phase_ != Phase::settling || now < settled_at_) return std::nullopt;
  blame();
  return end(SIGTERM, std::min(options_.grace, kFailureGrace));
}

std::optional<Clock::time_point> JobPolicy::wake_up() const {
  if (phase_ != Phase::settling) return std::nullopt;
  return settled_at_;
}

Outcome JobPolicy::outcome() const {
  Outcome result = outcome_;
  std::sort(result.ended.begin(), result.ended.end());
  return result;
}

std::optional<End> JobPolicy::end(int signal, std::chrono::milliseconds grace) {
  phase_ = Phase::ending;
  return End{.signal = signal, .grace = grace};
}

void JobPolicy::blame() {
  // Ranks that fail because another rank leaves the job may end before that rank does.
  const auto without_shutdown = [](const Failure& cause) { return cause.end.without_shutdown; };
  auto first = std::find_if(causes_.begin(), causes_.end(), is_strong_cause);
  if (first == causes_.end())
    first = std::find_if(causes_.begin(), causes_.end(), without_shutdown);
  if (first == causes_.end()) {
    first = causes_.begin();
    const auto peer =
        options_.lost_peer_of ? options_.lost_peer_of(first->end.rank) : std::optional<int>();
    const auto named = std::find_if(causes_.begin(), causes_.end(),
                                    [&](const Failure& cause) { return peer == cause.end.rank; });
    if (named != causes_.end()) first = named;
  }
  outcome_.culprit = first->end;
  outcome_.code = first->end.without_shutdown ? kExitInternal : exit_code(first->end.status);
  for (auto it = causes_.begin(); it != causes_.end(); ++it) {
    if (it != first) outcome_.others.push_back(it->end);
  }
}

}  // namespace hvd::launcher
