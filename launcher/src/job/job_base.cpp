#include "job/job_base.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include <hvd/core/internal/text.hpp>

#include "base/exit_codes.hpp"
#include "base/signals.hpp"
#include "supervise/descendants.hpp"

namespace hvd::launcher {
namespace {

using boost::system::error_code;
using std::chrono::milliseconds;

/// The time that hvdrun waits after a failure for a reader that does not read its output.
constexpr milliseconds kDrain{400};
/// The time for the system to take the last frames.
constexpr milliseconds kLastFrames{100};

}  // namespace

JobBase::JobBase(Options options, OutputHub::Options output, JobSpec spec)
    : options_(std::move(options)),
      output_(io_, std::move(output)),
      spec_(std::move(spec)),
      signals_(io_),
      last_timer_(io_, Clock::time_point::max()) {
  ::signal(SIGPIPE, SIG_IGN);
  become_subreaper();  // adopts the processes that a killed agent leaves behind
  for (const int signal : kForwardedSignals) {
    if (!is_ignored(signal)) signals_.add(signal);
  }
  if (!is_ignored(SIGTSTP)) signals_.add(SIGTSTP);
  watch_signals();
}

JobBase::~JobBase() {
  for (Host& host : hosts_) {
    if (host.link) host.link->close();  // ends the agents, all at once
  }
  hosts_.clear();
  kill_strays(spec_.job_id, Clock::now() + kAgentPatience);
}

void JobBase::open(const Plan& plan) {
  output_.start(
      [this] { send_credit(), check_over(); },
      [this](const std::string& target, std::error_code error) { on_output_error(target, error); });
  status_.emplace(io_, options_, plan, spec_.job_id,
                  StatusService::Hooks{.ask = [this] { send_to_all(StatusRequest{}); },
                                       .show = [this](std::string_view text) { output_.say(text); },
                                       .shown = [this] { return output_.said(); }});
}

// ---- signals

void JobBase::watch_signals() {
  signals_.async_wait([this](error_code error, int signal) {
    if (error) return;
    on_signal(signal);
    watch_signals();
  });
}

void JobBase::on_signal(int signal) {
  if (signal == SIGTSTP) {
    std::exchange(suspending_, true) ? stop_self() : stop_when_excused();
  } else if (signal == SIGUSR1 || signal == SIGUSR2) {
    before_signal(signal);
    send_to_all(Forward{.signal = signal});
  } else {
    before_signal(signal);
    on_end_signal(signal);
  }
}

/// Ctrl-Z stops hvdrun and not the ranks. Agents that expect its heartbeats are informed first. A
/// second Ctrl-Z does not wait for that.
void JobBase::stop_when_excused() {
  bool ready = true;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const Host& host = hosts_[i];
    if (!spec_.remote[i] || host.over || host.link->excused()) continue;
    ready = false;
    if (host.link->flushed()) host.link->send(Suspend{});
  }
  if (ready) stop_self();
}

void JobBase::stop_self() {
  suspending_ = false;
  ::raise(SIGSTOP);
  send_credit();
}

// ---- output

void JobBase::on_output(const Output& frame) {
  if (reported_) return;  // the agent is not waited for any more
  if (status_) status_->clear_live_lines(detail::text_of(frame.bytes));
  try {
    output_.add(frame);
  } catch (const LaunchError& error) {
    fail(error.code(), error.what());
  }
  send_credit();
}

/// Allows the agents to send as many more bytes as they have sent, unless too much waits for the
/// readers of hvdrun's output, or hvdrun is about to stop: a frame after `Suspend` would revoke it.
void JobBase::send_credit() {
  if (suspending_ || !output_.has_room()) return;
  for (Host& host : hosts_) {
    const auto debt = host.session.take_debt();
    if (debt > 0 && !host.over) host.link->send(Credit{.bytes = debt});
  }
}

void JobBase::on_output_error(const std::string& target, std::error_code error) {
  const bool closed = error == std::errc::broken_pipe;
  fail(closed ? kExitSignalBase + SIGPIPE : kExitResource,
       closed ? fmt::format("{} was closed by its reader", target)
              : fmt::format("cannot write to {}: {}", target, error.message()));
}

void JobBase::on_stderr(std::size_t host, const std::string& text) {
  if (!options_.verbose && !hosts_[host].session.prepared()) return;
  const std::string line = last_stderr(text);
  if (!line.empty()) say(fmt::format("{}: {}", name_of(host), line));
}

void JobBase::say(const std::string& line) {
  if (status_) status_->clear_live_lines({});
  output_.say(fmt::format("hvdrun: {}\n", line));
}

void JobBase::print_verbosely(const std::string& line) {
  if (options_.verbose) say(line);
}

// ---- the end

void JobBase::send_to_all(const Frame& frame) {
  for (Host& host : hosts_) {
    if (host.over) continue;
    host.session.on_sent(frame);
    host.link->send(frame);
  }
}

void JobBase::send_end(const End& order) {
  if (status_) status_->stop();
  send_to_all(order);
  for (Host& host : hosts_) {
    if (!host.session.prepared()) host.over = true;  // no process of the job has been started there
  }
  // Ranks that have agreed to stop have the grace period twice.
  finish_after(2 * order.grace + kAgentPatience);
  // This is posted, because the caller may report more events first.
  boost::asio::post(io_, [this] { check_over(); });
}

/// Calls `finish` after this time at the latest. Neither signals nor a later `End` with a longer
/// grace period postpone it.
void JobBase::finish_after(milliseconds time) {
  const Clock::time_point at = Clock::now() + time;
  if (last_timer_.expiry() <= at) return;
  last_timer_.expires_at(at);
  last_timer_.async_wait([this](error_code error) {
    if (!error) finish();
  });
}

bool JobBase::processes_gone() const {
  return std::all_of(hosts_.begin(), hosts_.end(),
                     [](const Host& host) { return host.session.gone() || host.over; });
}

void JobBase::check_over() {
  if (suspending_) stop_when_excused();  // a host that is over need not be told
  if (!processes_gone()) return;
  if (failed()) {
    finish_after(kDrain);
  } else {
    last_timer_.expires_at(Clock::time_point::max());  // a job that succeeds waits for its readers
  }
  const auto over = [](const Host& host) { return host.over; };
  if (!std::all_of(hosts_.begin(), hosts_.end(), over)) return;
  if (status_) status_->stop();
  output_.finish();
  // The job fails if its last output cannot be written.
  if (!failed() && !output_.flushed()) return;
  if (!std::exchange(reported_, true)) report_end();
  // The last frame tells the nodes how the job ended.
  const auto sent = [](const Host& host) { return !host.link || host.link->flushed(); };
  if (output_.flushed() && std::all_of(hosts_.begin(), hosts_.end(), sent)) io_.stop();
}

void JobBase::on_flushed() {
  if (suspending_) stop_when_excused();
  if (reported_) check_over();
}

/// Stops waiting for agents that do not end and, if the job has failed, for all output.
void JobBase::finish() {
  if (failed()) {
    for (Host& host : hosts_) host.over = true;
    check_over();
    // The last frame for a node may wait behind another frame.
    last_timer_.expires_after(kLastFrames);
    return last_timer_.async_wait([this](error_code) { io_.stop(); });
  }
  // An elastic job has succeeded. Only agents that have ended their workers are waited for.
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    Host& host = hosts_[i];
    if (host.over || host.session.gone()) continue;
    say(fmt::format("the agent on {} does not end; {}", name_of(i), kMayLackOutput));
    host.link->close();
    host.over = true;
  }
  check_over();
}

}  // namespace hvd::launcher
