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
/// SIGABRT counts as such an error, because an uncaught exception ends with it, and so does the
/// crash of a rank whose library had blamed another before.
bool is_strong(const RankEnd& end) {
  const int signal = killing_signal(end.status);
  return signal != 0 && signal != SIGABRT && end.blames < 0;
}

}  // namespace

bool JobPolicy::is_strong_cause(const Failure& cause) { return is_strong(cause.end); }

int exit_code(int status) noexcept {
  return WIFSIGNALED(status) ? kExitSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
}

JobPolicy::JobPolicy(int num_ranks, const Options& options)
    : num_ranks_(static_cast<std::size_t>(num_ranks)), options_(options) {}

std::optional<End> JobPolicy::on_exit(const RankEnd& ended, Clock::time_point now,
                                      Clock::time_point at) {
  over_.insert(ended.rank);
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
    failed_at_ = now;
  }
  if (phase_ != Phase::settling) return std::nullopt;
  return on_time(over_.size() == num_ranks_ ? settled_at() : now);
}

std::optional<End> JobPolicy::on_signal(int signal) {
  if (phase_ == Phase::ending) return end(SIGKILL, std::chrono::milliseconds{0});
  if (phase_ == Phase::settling) {
    blame();
  } else {
    outcome_.code = kExitSignalBase + signal;
    outcome_.trouble = received_signal(signal);
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
  return end(SIGTERM, failure_grace());
}

std::optional<End> JobPolicy::on_loss(int code, const std::string& what) {
  if (phase_ == Phase::settling && std::none_of(causes_.begin(), causes_.end(), is_strong_cause)) {
    for (const Failure& cause : std::exchange(causes_, {})) outcome_.others.push_back(cause.end);
    phase_ = Phase::running;
  }
  return on_trouble(code, what);
}

std::optional<End> JobPolicy::on_time(Clock::time_point now) {
  if (phase_ != Phase::settling || now < settled_at()) return std::nullopt;
  blame();
  return end(SIGTERM, failure_grace());
}

std::optional<Clock::time_point> JobPolicy::wake_up() const {
  if (phase_ != Phase::settling) return std::nullopt;
  return settled_at();
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

std::chrono::milliseconds JobPolicy::failure_grace() const {
  return std::min(options_.grace, kFailureGrace);
}

/// Returns the failure to blame by what is known so far.
auto JobPolicy::culprit() const -> std::vector<Failure>::const_iterator {
  // Ranks that fail because another rank leaves the job may end before that rank does.
  const auto without_shutdown = [](const Failure& cause) { return cause.end.without_shutdown; };
  auto found = std::find_if(causes_.begin(), causes_.end(), is_strong_cause);
  if (found != causes_.end()) return found;
  found = std::find_if(causes_.begin(), causes_.end(), without_shutdown);
  if (found != causes_.end()) return found;
  found = causes_.begin();
  for (std::size_t followed = 0; followed < causes_.size(); ++followed) {
    const auto blamed = std::find_if(causes_.begin(), causes_.end(), [&](const Failure& cause) {
      return cause.end.rank == found->end.blames;
    });
    if (blamed == causes_.end()) return found;
    found = blamed;
  }
  return causes_.begin();  // they blame each other
}

/// Returns when the causes are complete. The process of a rank that has left the job may run for
/// longer than those of the ranks that fail because of that, for example in destructors.
Clock::time_point JobPolicy::settled_at() const {
  const RankEnd& end = culprit()->end;
  const bool awaits_blamed = end.blamed_left && end.blames >= 0 && over_.count(end.blames) == 0;
  return failed_at_ + (awaits_blamed ? std::max(options_.settle, kLeaving) : options_.settle);
}

void JobPolicy::blame() {
  const auto first = culprit();
  outcome_.culprit = first->end;
  const int blamed = first->end.blames;  // a rank may say any number
  if (blamed >= 0 && blamed < static_cast<int>(num_ranks_) && over_.count(blamed) == 0) {
    outcome_.unresponsive = blamed;
  }
  outcome_.code = first->end.without_shutdown ? kExitInternal : exit_code(first->end.status);
  for (auto it = causes_.begin(); it != causes_.end(); ++it) {
    if (it != first) outcome_.others.push_back(it->end);
  }
}

}  // namespace hvd::launcher
