#include "job.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include <hvd/core/version.hpp>

#include "descendants.hpp"
#include "exit_codes.hpp"
#include "own_environment.hpp"
#include "text.hpp"

namespace hvd::launcher {
namespace {

using boost::system::error_code;
using std::chrono::milliseconds;

/// How long a reader that does not read may keep hvdrun after a failure.
constexpr milliseconds kDrain{400};
/// How long an agent may take beyond the grace it was given.
constexpr milliseconds kAgentPatience{1'500};

double in_seconds(milliseconds duration) { return static_cast<double>(duration.count()) / 1000.0; }

/// What rank 0 reads from: a file or pipe is handed on. A terminal is not: ranks are background
/// process groups, which the kernel stops when they read from one.
int standard_input_to_pass() { return ::isatty(STDIN_FILENO) == 1 ? -1 : STDIN_FILENO; }

/// A signal that was ignored when hvdrun started (nohup, a shell's background job) stays ignored.
bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Job::Job(Options options, Plan plan)
    : options_(std::move(options)),
      plan_(std::move(plan)),
      policy_(static_cast<int>(plan_.ranks.size()), options_.grace),
      signals_(io_),
      settle_timer_(io_),
      start_timer_(io_),
      job_timer_(io_),
      last_timer_(io_),
      output_(io_, {.ranks = static_cast<int>(plan_.ranks.size()),
                    .lines = {.prefix = options_.prefix, .timestamps = options_.timestamps},
                    .directory = options_.output_directory}),
      ranks_(plan_.ranks.size()) {
  ::signal(SIGPIPE, SIG_IGN);
  become_subreaper();  // for what an agent leaves behind that was killed itself
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    if (!is_ignored(signal)) signals_.add(signal);
  }
  watch_signals();
  for (std::size_t host = 0; host < plan_.hosts.size(); ++host) {
    const int input = host == 0 ? standard_input_to_pass() : -1;
    hosts_.push_back({.link = std::make_unique<AgentLink>(io_, input)});
  }
  rendezvous_.emplace();
}

Job::~Job() {
  hosts_.clear();  // ends the agents
  kill_strays(rendezvous_ ? rendezvous_->identity().id : "", Clock::now() + kAgentPatience);
}

int Job::run() {
  output_.start([this] { pay_credit(), check_over(); },
                [this](Stream stream, std::error_code error) { on_output_error(stream, error); });
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    hosts_[host].link->start([this, host](const Frame& frame) { on_frame(host, frame); },
                             [this, host](const std::string& how) { on_lost(host, how); });
    send_prepare(host);
  }
  arm_timers();
  io_.run();
  const int code = policy_.outcome().code;
  return code == 0 && late_signal_ ? kExitSignalBase + *late_signal_ : code;
}

// ---- the agents

void Job::send_prepare(std::size_t host) {
  const Variables exported = exported_variables(options_.exports);
  Prepare frame{.version = std::string(version()),
                .directory = std::filesystem::current_path().string(),
                .program = options_.program,
                .environment = inherited_variables(own_environment()),
                .ranks = {},
                .secret = rendezvous_->secret()};
  if (options_.start_timeout) {
    frame.environment =
        merge(frame.environment,
              {fmt::format("HVD_START_TIMEOUT={}", in_seconds(*options_.start_timeout))});
  }
  if (::isatty(STDOUT_FILENO) == 1) {
    // A rank writes into a pipe and could not know that a person reads.
    frame.environment = merge(frame.environment, {"HVD_TERMINAL=1"});
  }
  for (const Placement& at : plan_.ranks) {
    if (at.host != host) continue;
    frame.ranks.push_back(
        {.rank = at.rank,
         .variables = merge(rank_variables(at, plan_, rendezvous_->identity()), exported)});
  }
  hosts_[host].link->send(frame);
}

void Job::on_frame(std::size_t host, const Frame& frame) {
  if (const auto* prepared = std::get_if<Prepared>(&frame)) {
    on_prepared(host, *prepared);
  } else if (const auto* refused = std::get_if<Refused>(&frame)) {
    hosts_[host].over = true;
    order(policy_.on_trouble(refused->code,
                             fmt::format("{}: {}", plan_.hosts[host].name, refused->message)));
  } else if (const auto* started = std::get_if<Started>(&frame)) {
    Rank& rank = ranks_.at(static_cast<std::size_t>(started->rank));
    rank.pid = started->pid;
    rank.running = true;
    const auto runs = [](const Rank& other) { return other.running; };
    if (std::all_of(ranks_.begin(), ranks_.end(), runs)) start_timer_.cancel();
    say_verbosely(fmt::format("rank {} on {} has pid {}", started->rank, plan_.hosts[host].name,
                              started->pid));
  } else if (const auto* output = std::get_if<Output>(&frame)) {
    on_output(host, *output);
  } else if (const auto* exited = std::get_if<Exited>(&frame)) {
    on_exited(*exited);
  } else if (std::holds_alternative<Gone>(frame)) {
    hosts_[host].gone = true;
  } else if (std::holds_alternative<Done>(frame)) {
    hosts_[host].over = true;
  }
  check_over();
}

void Job::on_prepared(std::size_t host, const Prepared& frame) {
  hosts_[host].prepared = true;
  if (frame.threads > 0) {
    say_verbosely(fmt::format("OMP_NUM_THREADS={} for the ranks on {} ({})", frame.threads,
                              plan_.hosts[host].name, frame.hostname));
  }
  const auto is_prepared = [](const Host& other) { return other.prepared; };
  if (std::all_of(hosts_.begin(), hosts_.end(), is_prepared) && !policy_.failed()) {
    send_to_all(Launch{});
  }
}

void Job::on_output(std::size_t host, const Output& frame) {
  hosts_[host].debt += static_cast<std::uint32_t>(frame.bytes.size());
  try {
    output_.add(frame);
  } catch (const LaunchError& error) {
    order(policy_.on_trouble(error.code(), error.what()));
  }
  pay_credit();
}

/// Agents may send as much as the readers of hvdrun's output have taken.
void Job::pay_credit() {
  if (!output_.has_room()) return;
  for (Host& host : hosts_) {
    const auto debt = std::exchange(host.debt, 0U);
    if (debt > 0 && !host.over) host.link->send(Credit{.bytes = debt});
  }
}

void Job::on_exited(const Exited& frame) {
  ranks_.at(static_cast<std::size_t>(frame.rank)).over = true;
  order(policy_.on_exit({.rank = frame.rank, .status = frame.status, .elapsed = frame.elapsed},
                        Clock::now()));
  arm_settle_timer();
}

void Job::on_lost(std::size_t host, const std::string& how) {
  if (std::exchange(hosts_[host].over, true)) return;
  order(policy_.on_trouble(kExitInternal,
                           fmt::format("the agent on {} {}", plan_.hosts[host].name, how)));
  kill_strays(rendezvous_->identity().id, Clock::now() + kAgentPatience);
  for (const Placement& at : plan_.ranks) {
    Rank& rank = ranks_[static_cast<std::size_t>(at.rank)];
    if (at.host != host || !rank.running || std::exchange(rank.over, true)) continue;
    order(policy_.on_exit({.rank = at.rank, .status = SIGKILL}, Clock::now()));
  }
  check_over();
}

void Job::send_to_all(const Frame& frame) {
  for (Host& host : hosts_) {
    if (!host.over) host.link->send(frame);
  }
}

void Job::order(const std::optional<End>& order) {
  if (!order) return;
  start_timer_.cancel();
  if (policy_.outcome().culprit) {
    say_verbosely(fmt::format("ending the other ranks, because rank {} failed",
                              policy_.outcome().culprit->rank));
  }
  send_to_all(*order);
  last_timer_.expires_after(order->grace + kAgentPatience);
  last_timer_.async_wait([this](error_code error) {
    if (!error) finish();
  });
}

// ---- what may come from outside

void Job::watch_signals() {
  signals_.async_wait([this](error_code error, int signal) {
    if (error) return;
    on_signal(signal);
    watch_signals();
  });
}

void Job::on_signal(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    send_to_all(Forward{.signal = signal});
    return;
  }
  if (processes_gone()) {  // only a reader that does not read can have kept us
    late_signal_ = signal;
    finish();
    return;
  }
  order(policy_.on_signal(signal));
}

void Job::on_output_error(Stream stream, std::error_code error) {
  const char* name = stream == Stream::out ? "stdout" : "stderr";
  const bool closed = error == std::errc::broken_pipe;
  order(policy_.on_trouble(closed ? kExitSignalBase + SIGPIPE : kExitResource,
                           closed ? fmt::format("{} was closed by its reader", name)
                                  : fmt::format("cannot write to {}: {}", name, error.message())));
}

void Job::arm_timers() {
  const auto start = options_.start_timeout.value_or(Options::kDefaultStartTimeout);
  start_timer_.expires_after(start);
  start_timer_.async_wait([this, start](error_code error) {
    if (error) return;
    std::string late;
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      if (!hosts_[host].prepared) late += (late.empty() ? "" : ", ") + plan_.hosts[host].name;
    }
    order(policy_.on_trouble(kExitHostUnreachable,
                             fmt::format("the ranks{}{} have not started within {:.1f} s",
                                         late.empty() ? "" : " on ", late, in_seconds(start))));
  });
  if (!options_.timeout) return;
  job_timer_.expires_after(*options_.timeout);
  job_timer_.async_wait([this](error_code error) {
    if (error) return;
    order(policy_.on_trouble(kExitDeadline, fmt::format("the job was not over after {:.1f} s",
                                                        in_seconds(*options_.timeout))));
    check_over();
  });
}

void Job::arm_settle_timer() {
  const auto due = policy_.wake_up();
  if (!due) return;
  settle_timer_.expires_at(*due);
  settle_timer_.async_wait([this](error_code error) {
    if (!error) order(policy_.on_time(Clock::now()));
  });
}

// ---- the end

bool Job::processes_gone() const {
  return std::all_of(hosts_.begin(), hosts_.end(),
                     [](const Host& host) { return host.gone || host.over; });
}

std::string Job::host_of(int rank) const {
  return plan_.hosts[plan_.ranks.at(static_cast<std::size_t>(rank)).host].name;
}

void Job::check_over() {
  const auto over = [](const Host& host) { return host.over; };
  const bool all_over = std::all_of(hosts_.begin(), hosts_.end(), over);
  if (policy_.ending() && processes_gone() && !std::exchange(draining_, true)) {
    // A reader that does not read must not keep a failed job.
    last_timer_.expires_after(kDrain);
    last_timer_.async_wait([this](error_code error) {
      if (!error) finish();
    });
  }
  if (!all_over) return;
  if (!std::exchange(reported_, true)) {
    output_.finish();
    output_.say(report(
        policy_.outcome(),
        [this](int rank) {
          const auto index = static_cast<std::size_t>(rank);
          return RankPlace{.host = host_of(rank),
                           .local_rank = plan_.ranks.at(index).local_rank,
                           .pid = ranks_.at(index).pid};
        },
        [this](int rank) { return output_.tail(rank); }));
  }
  if (output_.flushed()) io_.stop();
}

/// Now, whoever is late.
void Job::finish() {
  for (Host& host : hosts_) host.over = true;
  check_over();
  io_.stop();
}

void Job::say_verbosely(const std::string& line) {
  if (options_.verbose) output_.say(fmt::format("hvdrun: {}\n", line));
}

}  // namespace hvd::launcher
