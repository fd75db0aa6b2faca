#include "job/job.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "base/exit_codes.hpp"
#include "base/signals.hpp"
#include "base/text.hpp"
#include "plan/cpus.hpp"
#include "plan/launcher_choice.hpp"
#include "supervise/descendants.hpp"
#include "supervise/rendezvous.hpp"

namespace hvd::launcher {
namespace {

using boost::system::error_code;
using std::chrono::milliseconds;

/// Returns the standard input for rank 0. A file or pipe is passed on. A terminal is not, because
/// ranks are background process groups, which the kernel stops when they read from a terminal.
int standard_input_to_pass() { return ::isatty(STDIN_FILENO) == 1 ? -1 : STDIN_FILENO; }

/// Takes note of signals that ask the job to end, also of those that come while no try runs, so
/// that no job listens for them. Other signals that are forwarded to ranks do nothing then.
class EndSignals {
 public:
  EndSignals() : signals_(io_) {
    for (const int signal : kForwardedSignals) {
      if (!is_ignored(signal)) signals_.add(signal);
    }
    watch();
  }
  ~EndSignals() { hold_forwarded_signals(); }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;
  /// Returns the first signal that has come, or 0.
  [[nodiscard]] int received() {
    io_.poll();
    return received_;
  }

 private:
  void watch() {
    signals_.async_wait([this](error_code error, int signal) {
      if (error) return;
      if (received_ == 0 && asks_to_end(signal)) received_ = signal;
      watch();
    });
  }

  boost::asio::io_context io_{1};
  boost::asio::signal_set signals_;
  int received_ = 0;
};

OutputHub::Options output_options(const Options& options, const Plan& plan,
                                  const std::optional<ConnectedAgents>& agents) {
  return {.ranks = static_cast<int>(plan.ranks.size()),
          .lines = {.prefix = options.prefix, .timestamps = options.timestamps},
          .files = {.directory = options.output_directory, .append = options.restart_count > 0},
          .tail_lines = agents && agents->quoted_lines ? *agents->quoted_lines : Tail::kLines};
}

}  // namespace

Job::Job(Options options, Plan plan, std::optional<ConnectedAgents> agents)
    : JobBase(options, output_options(options, plan, agents),
              {.job_id = random_job_id(),
               .secret = agents ? agents->secret : Secret::random(),
               .own = own_environment(),
               .agents_are_their_own = agents.has_value(),
               .agents_have_the_secret = agents && agents->secret_known}),
      plan_(std::move(plan)),
      start_timer_(io_),
      supervisor_(
          io_, static_cast<int>(plan_.ranks.size()),
          {.grace = options_.grace,
           .settle = plan_.hosts.size() > 1 ? JobPolicy::kSettleOverNetwork : JobPolicy::kSettle},
          [this](const End& order) { end(order); }),
      notices_(plan_.hosts.size()),
      ranks_(plan_.ranks.size()),
      agents_(std::move(agents)) {
  // Agents that hvdrun has not started have environments of their own.
  if (!agents_) spec_.forwarding = forwarded_variables(spec_.own, options_.exports);
  for (const HostSpec& host : plan_.hosts) {
    const std::size_t index = hosts_.size();
    const bool remote = agents_ ? static_cast<bool>(agents_->streams.at(index))
                                : is_remote(host, options_.launcher);
    const bool forwards_signals = remote && agents_ && agents_->via == kViaNode;
    hosts_.push_back({.session = {plan_, index, forwards_signals}});
    spec_.remote.push_back(remote);
    spec_.several_machines |= remote && (!agents_ || agents_->several_machines);
  }
  for (std::size_t host = 0; host < hosts_.size(); ++host) start_agent(host);
}

void Job::start_agent(std::size_t host) {
  auto& link = hosts_[host].link;
  if (agents_ && spec_.remote[host]) {
    link = std::make_unique<AgentLink>(io_, std::move(agents_->streams[host]), agents_->via);
  } else {
    link = std::make_unique<AgentLink>(
        io_, spec_.command(options_, host, plan_.hosts[host], standard_input_to_pass()));
  }
}

/// Returns the name of a host for messages. A task of a scheduler is named by its ranks.
std::string Job::name_of(std::size_t host) const {
  const std::string& name = plan_.hosts[host].name;
  if (!agents_ || agents_->via != kViaTask) return name;
  std::vector<int> ranks;
  for (const Placement& at : plan_.ranks) {
    if (at.host == host) ranks.push_back(at.rank);
  }
  return fmt::format("{} on {}", ranks_text(ranks), name);
}

RankLocation Job::location_of(int rank) const {
  const Placement& at = plan_.ranks.at(static_cast<std::size_t>(rank));
  return {.host = plan_.hosts[at.host].name,
          .local_rank = at.local_rank,
          .pid = ranks_.at(static_cast<std::size_t>(rank)).pid};
}

int Job::run(std::optional<Deadline> deadline, int signal) {
  deadline_ = deadline;
  open(plan_);
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    hosts_[host].link->start(
        options_.host_timeout,
        {.on_ready = [this, host] { send_prepare(host); },
         .on_frame = [this, host](const Frame& frame) { on_frame(host, frame); },
         .on_flushed = [this] { on_flushed(); },
         .on_stderr = [this, host](const std::string& text) { on_stderr(host, text); },
         .on_lost = [this, host](const AgentLoss& loss) { on_lost(host, loss); }});
  }
  const auto& withheld = spec_.forwarding.withheld;
  if (spec_.several_machines && !withheld.empty()) {
    print_verbosely(fmt::format("not passed on without -x: {}", fmt::join(withheld, ", ")));
  }
  arm_timers();
  if (signal != 0) on_end_signal(signal);
  io_.run();
  return outcome_.code;
}

// ---- the agents

void Job::send_prepare(std::size_t host) {
  Prepare frame = spec_.prepare(options_, plan_, host);
  // A rank's standard output is a pipe, so it cannot find out itself that it ends at a terminal.
  if (::isatty(STDOUT_FILENO) == 1) frame.environment.emplace_back("HVD_TERMINAL=1");
  hosts_[host].session.on_sent(frame);
  hosts_[host].link->send(frame);
}

void Job::on_frame(std::size_t host, const Frame& frame) {
  AgentSession& session = hosts_[host].session;
  if (session.broken()) return;
  if (const auto wrong = session.on_frame(frame)) {
    // hvdrun asks all agents to end, this one too, before the host counts as lost.
    supervisor_.on_loss(kExitProtocol, fmt::format("{} does not keep hvdrun's protocol: {}",
                                                   name_of(host), *wrong));
    write_off(host);
    return;
  }
  if (const auto* prepared = std::get_if<Prepared>(&frame)) {
    on_prepared(host, *prepared);
  } else if (const auto* refused = std::get_if<Refused>(&frame)) {
    hosts_[host].over = true;
    supervisor_.on_trouble(refused->code, fmt::format("{}: {}", name_of(host), refused->message));
  } else if (const auto* started = std::get_if<Started>(&frame)) {
    ranks_.at(static_cast<std::size_t>(started->rank)) = {.pid = started->pid,
                                                          .started = Clock::now()};
    if (status_) status_->started(*started);
    const auto runs = [](const Host& other) { return other.session.all_started(); };
    if (std::all_of(hosts_.begin(), hosts_.end(), runs)) start_timer_.cancel();
    print_verbosely(fmt::format(
        "rank {} on {} has pid {}{}", started->rank, plan_.hosts[host].name, started->pid,
        started->cpus.empty() ? "" : fmt::format(" and is bound to CPUs {}", started->cpus)));
  } else if (const auto* output = std::get_if<Output>(&frame)) {
    on_output(*output);
  } else if (const auto* exited = std::get_if<Exited>(&frame)) {
    on_exited(*exited);
  } else if (const auto* usage = std::get_if<RankUsage>(&frame)) {
    if (status_) status_->heard(*usage);
  } else if (const auto* says = std::get_if<RankAnswer>(&frame)) {
    if (status_) status_->heard(*says);
  } else if (std::holds_alternative<Done>(frame)) {
    hosts_[host].over = true;
  } else if (const auto* asked = std::get_if<Forward>(&frame)) {
    asks_to_end(asked->signal) ? on_end_signal(host, asked->signal) : on_signal(asked->signal);
  }
  check_over();
}

void Job::on_prepared(std::size_t host, const Prepared& frame) {
  if (!frame.store.empty()) meeting_ = frame;
  notices_[host] = {.threads = std::max(frame.threads, 0), .unbound = frame.unbound};
  const auto is_prepared = [](const Host& other) { return other.session.prepared(); };
  if (std::all_of(hosts_.begin(), hosts_.end(), is_prepared) && !supervisor_.failed()) {
    report_threads();
    report_unbound();
    send_to_all(Launch{
        .variables = job_variables(
            {.id = spec_.job_id,
             .restart_count = static_cast<std::uint32_t>(options_.restart_count),
             .store = meeting_.store,
             .master_host = agents_ && !agents_->master_address.empty() ? agents_->master_address
                                                                        : meeting_.master_host,
             .master_port = meeting_.master_port})});
  }
}

/// Prints the notice once, however often the job is restarted.
void Job::report_threads() {
  if (options_.restart_count > 0 || (agents_ && agents_->quoted_lines)) return;
  std::vector<int> chosen;
  for (const Notice& notice : notices_) chosen.push_back(notice.threads);
  if (const std::string notice = omp_notice(chosen); !notice.empty()) say(notice);
}

/// Says why ranks are not bound, if the user has asked for that or wants to know more.
void Job::report_unbound() {
  if (options_.restart_count > 0 || !(options_.verbose || options_.binding.requested())) return;
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    const std::string& why = notices_[host].unbound;
    if (why.empty()) continue;
    say(fmt::format("ranks on {} are not bound to cores: {}", plan_.hosts[host].name, why));
  }
}

void Job::on_exited(const Exited& frame) {
  const Rank& rank = ranks_.at(static_cast<std::size_t>(frame.rank));
  if (status_) status_->ended(frame.rank);
  // The rank that failed first is to blame, but the frames of one host may arrive later than those
  // of another host, because output precedes them. So the time of the exit is estimated as the time
  // at which hvdrun heard of the start, plus how long the rank ran.
  supervisor_.on_exit(frame, rank.started + frame.elapsed);
}

void Job::on_lost(std::size_t host, const AgentLoss& loss) {
  if (hosts_[host].over) return on_flushed();  // what it has not got cannot be sent any more
  hosts_[host].over = true;                    // nothing can be sent to it any more
  if (!supervisor_.ending()) lost_ranks_ = hosts_[host].session.running_ranks();
  const Trouble trouble = explain(loss, name_of(host));
  supervisor_.on_loss(trouble.code, trouble.what);
  if (!loss.via.empty()) return check_over();  // its ranks are lost too; hvdrun ends none
  kill_strays(spec_.job_id, Clock::now() + kAgentPatience);
  write_off(host);
}

/// Expects nothing more from the host. Its ranks count as killed.
void Job::write_off(std::size_t host) {
  hosts_[host].over = true;
  for (const int rank : hosts_[host].session.running_ranks()) {
    supervisor_.on_exit({.rank = rank, .status = SIGKILL});
  }
  check_over();
}

void Job::end(const End& order) {
  start_timer_.cancel();
  if (const auto culprit = supervisor_.outcome().culprit) {
    print_verbosely(fmt::format("ending the other ranks, because rank {} failed", culprit->rank));
  }
  send_end(order);
}

// ---- what may come from outside

void Job::arm_timers() {
  const auto start = options_.start_timeout_or_default();
  start_timer_.expires_after(start);
  start_timer_.async_wait([this, start](error_code error) {
    if (error) return;
    std::string late;
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      if (hosts_[host].session.prepared()) continue;
      late += fmt::format("{}{}", late.empty() ? "" : ", ", name_of(host));
    }
    supervisor_.on_trouble(kExitHostUnreachable,
                           fmt::format("the ranks{}{} have not started within {:.1f} s",
                                       late.empty() ? "" : " on ", late, in_seconds(start)));
  });
  if (!deadline_) return;
  const auto left = std::chrono::ceil<milliseconds>(*deadline_ - Clock::now());
  supervisor_.limit(std::max(left, milliseconds{0}), time_is_over(*options_.timeout));
}

void Job::on_end_signal(int signal) { on_end_signal(0, signal); }

/// Platforms signal all nodes of a job. So the first signal of every node is the same request, and
/// only a second one of some node kills the ranks.
void Job::on_end_signal(std::size_t node, int signal) {
  const bool is_first = signalled_.insert(node).second;
  if (end_signal_ != 0 && is_first) return;
  if (end_signal_ == 0) end_signal_ = signal;
  supervisor_.on_signal(signal);
}

// ---- the end

void Job::report_end() {
  outcome_ = supervisor_.outcome();
  const std::string why_not = decide_restart();
  if (agents_ && agents_->quoted_lines) return;
  std::string text = report(
      outcome_, [this](int rank) { return location_of(rank); },
      [this](int rank) { return output_.tail(rank); });
  text += why_not;
  output_.say(text);
  if (agents_) send_finished(text);
  if (outcome_.culprit && plan_.hosts.size() > 1 &&
      chosen_interfaces(options_, spec_.own).empty()) {
    output_.say(network_hint(output_.tail(outcome_.culprit->rank)));
  }
}

/// Decides whether the ranks are restarted. A failure that a restart would have followed is not the
/// end of the job: where a signal or the deadline prevents the restart, that gives the exit code,
/// and this returns a line for the report.
std::string Job::decide_restart() {
  const bool restart_left = outcome_.culprit && options_.restart_count < options_.max_restarts;
  const bool too_late = deadline_ && Clock::now() >= *deadline_;
  may_restart_ = restart_left && end_signal_ == 0 && !too_late;
  if (!restart_left || may_restart_) return {};
  outcome_.code = end_signal_ != 0 ? kExitSignalBase + end_signal_ : kExitDeadline;
  return fmt::format("hvdrun: {}\n", end_signal_ != 0 ? received_signal(end_signal_)
                                                      : time_is_over(*options_.timeout));
}

/// Sends every node the report, the exit code, and whether it has to join again for a restart.
void Job::send_finished(const std::string& report) {
  if (may_restart_ && agents_->on_restart) agents_->on_restart();
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (!spec_.remote[i]) continue;
    hosts_[i].link->send(Finished{.code = outcome_.code, .again = may_restart_, .report = report});
  }
}

int run_with_restarts(Options options, const MakeJob& make_job) {
  EndSignals signals;
  std::optional<Deadline> deadline;
  const auto must_end = [&] {
    return signals.received() != 0 || (deadline && Clock::now() >= *deadline);
  };
  for (;;) {
    auto job = make_job(options, must_end);
    const bool begun = job != nullptr;
    if (begun) {
      if (options.timeout && !deadline) deadline = Clock::now() + *options.timeout;
      const int code = job->run(deadline, signals.received());
      if (!job->may_restart()) return code;
    }
    job.reset();  // waits until all processes of this try are gone
    if (const int signal = signals.received(); signal != 0) {
      fmt::print(stderr, "hvdrun: {}\n", received_signal(signal));
      return kExitSignalBase + signal;
    }
    if (!begun) {
      fmt::print(stderr, "hvdrun: {}\n", time_is_over(*options.timeout));
      return kExitDeadline;
    }
    fmt::print(stderr, "hvdrun: restart {} of {}\n", ++options.restart_count, options.max_restarts);
  }
}

}  // namespace hvd::launcher
