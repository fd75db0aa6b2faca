#include "job.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "descendants.hpp"
#include "exit_codes.hpp"
#include "launcher_choice.hpp"
#include "omp_threads.hpp"
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

/// The options of a job whose one process is mpirun; what concerns ranks is in its command.
Options as_mpirun(Options options, std::vector<std::string> arguments) {
  options.program = std::move(arguments);
  options.exports.clear();
  options.launcher = Launcher::local;
  return options;
}

/// A signal that was ignored when hvdrun started (nohup, a shell's background job) stays ignored.
bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Job::Job(Options options, Plan plan)
    : Job(std::move(options), std::move(plan), std::nullopt, own_environment(), std::nullopt) {}

Job::Job(Options options, Plan plan, MpirunCommand mpirun)
    : Job(as_mpirun(std::move(options), std::move(mpirun.arguments)),
          plan_ranks({{.name = "localhost", .slots = 1}}, 1), std::move(plan),
          std::move(mpirun.variables), std::nullopt) {
  hosts_.front().threads = mpirun.threads;
  mpirun_output_.emplace(static_cast<int>(mpirun_plan_->ranks.size()), mpirun.kind);
}

Job::Job(Options options, Plan plan, NodeParty nodes)
    : Job(std::move(options), std::move(plan), std::nullopt, own_environment(), std::move(nodes)) {}

Job::Job(Options options, Plan plan, std::optional<Plan> through_mpirun, Variables own,
         std::optional<NodeParty> nodes)
    : options_(std::move(options)),
      plan_(std::move(plan)),
      policy_(static_cast<int>(plan_.ranks.size()), options_.grace),
      signals_(io_),
      settle_timer_(io_),
      start_timer_(io_),
      job_timer_(io_),
      last_timer_(io_),
      output_(io_,
              {.ranks = static_cast<int>((through_mpirun ? *through_mpirun : plan_).ranks.size()),
               .lines = {.prefix = options_.prefix, .timestamps = options_.timestamps},
               .directory = options_.output_directory,
               .append = options_.restart_count > 0}),
      ranks_(plan_.ranks.size()),
      nodes_(std::move(nodes)),
      briefing_{.job_id = random_job_id(),
                .secret = nodes_ ? nodes_->secret : Secret::random(),
                .own = std::move(own),
                .places_are_known = through_mpirun.has_value(),
                .nodes_are_their_own = nodes_.has_value(),
                .nodes_have_the_secret = nodes_ && nodes_->secret_known},
      mpirun_plan_(std::move(through_mpirun)) {
  ::signal(SIGPIPE, SIG_IGN);
  become_subreaper();  // for what an agent leaves behind that was killed itself
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP}) {
    if (!is_ignored(signal)) signals_.add(signal);
  }
  watch_signals();
  // Nodes have environments of their own.
  if (!nodes_) briefing_.forwarding = forwarded_variables(briefing_.own, options_.exports);
  for (const HostSpec& host : plan_.hosts) {
    const bool remote = nodes_ ? !hosts_.empty() : is_remote(host, options_.launcher);
    hosts_.push_back({.link = nullptr, .remote = remote});
    briefing_.remote.push_back(remote);
    briefing_.several_machines |= remote && !(nodes_ && nodes_->one_machine);
  }
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    hosts_[host].link =
        nodes_ && hosts_[host].remote
            ? std::make_unique<AgentLink>(io_, std::move(nodes_->streams.at(host)))
            : std::make_unique<AgentLink>(
                  io_, briefing_.command(options_, plan_, host, standard_input_to_pass()));
  }
}

Job::~Job() {
  for (Host& host : hosts_) {
    if (host.link) host.link->close();  // ends the agents, all at once
  }
  hosts_.clear();
  kill_strays(briefing_.job_id, Clock::now() + kAgentPatience);
}

int Job::run() {
  output_.start([this] { pay_credit(), check_over(); },
                [this](Stream stream, std::error_code error) { on_output_error(stream, error); });
  for (std::size_t host = 0; host < hosts_.size(); ++host) {
    hosts_[host].link->start(
        {.on_ready = [this, host] { send_prepare(host); },
         .on_frame = [this, host](const Frame& frame) { on_frame(host, frame); },
         .on_words = [this, host](const std::string& words) { on_words(host, words); },
         .on_lost = [this, host](const AgentLoss& loss) { on_lost(host, loss); }});
  }
  const auto& withheld = briefing_.forwarding.withheld;
  if (briefing_.several_machines && !withheld.empty()) {
    say_verbosely(fmt::format("not passed on without -x: {}", fmt::join(withheld, ", ")));
  }
  open_status_desk();
  arm_timers();
  io_.run();
  const int code = outcome_.code;
  return code == 0 && late_signal_ ? kExitSignalBase + *late_signal_ : code;
}

// ---- the agents

void Job::send_prepare(std::size_t host) {
  Prepare frame = briefing_.prepare(options_, plan_, host);
  // A rank writes into a pipe and could not know that a person reads.
  if (::isatty(STDOUT_FILENO) == 1) frame.environment.emplace_back("HVD_TERMINAL=1");
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
    rank.started = Clock::now();
    if (status_) status_->started(*started);
    const auto runs = [](const Rank& other) { return other.running; };
    if (std::all_of(ranks_.begin(), ranks_.end(), runs)) start_timer_.cancel();
    say_verbosely(fmt::format("rank {} on {} has pid {}", started->rank, plan_.hosts[host].name,
                              started->pid));
  } else if (const auto* output = std::get_if<Output>(&frame)) {
    on_output(host, *output);
  } else if (const auto* exited = std::get_if<Exited>(&frame)) {
    on_exited(*exited);
  } else if (const auto* usage = std::get_if<RankUsage>(&frame)) {
    if (status_) status_->heard(*usage);
  } else if (const auto* says = std::get_if<RankSays>(&frame)) {
    if (status_) status_->heard(*says);
  } else if (std::holds_alternative<Gone>(frame)) {
    hosts_[host].gone = true;
  } else if (std::holds_alternative<Done>(frame)) {
    hosts_[host].over = true;
  } else if (const auto* asked = std::get_if<Forward>(&frame)) {
    on_signal(asked->signal);
  }
  check_over();
}

void Job::on_prepared(std::size_t host, const Prepared& frame) {
  hosts_[host].prepared = true;
  if (!frame.store.empty()) meeting_ = frame;
  if (frame.threads > 0) hosts_[host].threads = frame.threads;
  const auto is_prepared = [](const Host& other) { return other.prepared; };
  if (std::all_of(hosts_.begin(), hosts_.end(), is_prepared) && !policy_.failed()) {
    tell_threads();
    send_to_all(
        Launch{.variables =
                   mpirun_plan_
                       ? Variables{}
                       : job_variables(
                             {.id = briefing_.job_id,
                              .restart_count = static_cast<std::uint32_t>(options_.restart_count),
                              .store = meeting_.store,
                              .master_host = nodes_ ? nodes_->master_address : meeting_.master_host,
                              .master_port = meeting_.master_port})});
  }
}

/// Once, however often the job is started anew.
void Job::tell_threads() {
  if (options_.restart_count > 0) return;
  std::vector<int> chosen;
  for (const Host& host : hosts_) chosen.push_back(host.threads);
  if (const std::string notice = omp_notice(chosen); !notice.empty()) say(notice);
}

void Job::on_output(std::size_t host, const Output& frame) {
  hosts_[host].debt += static_cast<std::uint32_t>(frame.bytes.size());
  if (status_) {
    status_->make_way({reinterpret_cast<const char*>(frame.bytes.data()), frame.bytes.size()});
  }
  try {
    if (mpirun_output_) {
      const auto* text = reinterpret_cast<const char*>(frame.bytes.data());
      for (const Output& piece : mpirun_output_->feed(frame.stream, {text, frame.bytes.size()})) {
        output_.add(piece);
      }
    } else {
      output_.add(frame);
    }
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
  Rank& rank = ranks_.at(static_cast<std::size_t>(frame.rank));
  rank.over = true;
  if (status_) status_->ended(frame.rank);
  // News may wait behind output, on one host's way longer than on another's: of two errors the one
  // that happened first is to blame. Both ways to tell when are late, if at all.
  const auto now = Clock::now();
  order(policy_.on_exit({.rank = frame.rank,
                         .status = frame.status,
                         .elapsed = frame.elapsed,
                         .deserted = frame.deserted},
                        now, std::min<Clock::time_point>(now, rank.started + frame.elapsed)));
  arm_settle_timer();
}

/// ssh's warnings, and what an agent says that is about to die.
void Job::on_words(std::size_t host, const std::string& words) {
  if (!options_.verbose && !hosts_[host].prepared) return;  // if it matters, `on_lost` tells it
  const std::string line = last_words(words);
  if (!line.empty()) say(fmt::format("{}: {}", plan_.hosts[host].name, line));
}

void Job::on_lost(std::size_t host, const AgentLoss& loss) {
  if (std::exchange(hosts_[host].over, true)) return;
  const Trouble trouble = explain(loss, plan_.hosts[host].name);
  order(policy_.on_loss(trouble.code, trouble.what));
  if (loss.via.empty()) kill_strays(briefing_.job_id, Clock::now() + kAgentPatience);
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
  if (status_) status_->stop();
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
  if (signal == SIGTSTP) {
    suspend();
    return;
  }
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

/// Ctrl-Z stops hvdrun alone, as ever; agents that listen for its beats are told first.
void Job::suspend() {
  for (Host& host : hosts_) {
    if (host.remote && !host.over) host.link->send(Suspend{});
  }
  ::raise(SIGSTOP);
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
      if (hosts_[host].prepared) continue;
      late += fmt::format("{}{}", late.empty() ? "" : ", ", plan_.hosts[host].name);
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
  if (!std::exchange(reported_, true)) tell_end();
  if (output_.flushed()) io_.stop();
}

void Job::tell_end() {
  if (status_) status_->stop();
  outcome_ = policy_.outcome();
  std::optional<int> pid;
  if (mpirun_output_) {
    for (const Output& piece : mpirun_output_->finish()) output_.add(piece);
    const auto explained = mpirun_output_->explain(outcome_);
    outcome_ = explained.outcome;
    outcome_.ended.clear();  // mpirun itself
    pid = explained.pid;
  }
  output_.finish();
  const Plan& plan = mpirun_plan_ ? *mpirun_plan_ : plan_;
  const std::string text = report(
      outcome_,
      [&](int rank) {
        const Placement& at = plan.ranks.at(static_cast<std::size_t>(rank));
        return RankPlace{.host = plan.hosts[at.host].name,
                         .local_rank = at.local_rank,
                         .pid = pid ? *pid : ranks_.at(static_cast<std::size_t>(rank)).pid};
      },
      [this](int rank) { return output_.tail(rank); });
  output_.say(text);
  if (nodes_) tell_nodes(text);
  if (outcome_.culprit && plan.hosts.size() > 1 && briefing_.interfaces(options_).empty()) {
    output_.say(network_hint(output_.tail(outcome_.culprit->rank)));
  }
}

/// Every node says and exits with the same, and comes back when there is another try.
void Job::tell_nodes(const std::string& report) {
  const bool again = lost_a_rank() && options_.restart_count < options_.max_restarts;
  if (again && nodes_->on_restart) nodes_->on_restart();
  for (Host& host : hosts_) {
    if (host.remote) {
      host.link->send(Over{.code = outcome_.code, .again = again, .report = report});
    }
  }
}

/// Now, whoever is late.
void Job::finish() {
  for (Host& host : hosts_) host.over = true;
  check_over();
  io_.stop();
}

/// What mpirun starts are no ranks of an agent: nobody could be asked.
void Job::open_status_desk() {
  if (mpirun_plan_) {
    if (options_.status) output_.say("hvdrun: --status: not known of ranks that mpirun starts\n");
    return;
  }
  status_.emplace(io_, options_, plan_, briefing_.job_id,
                  StatusDesk::Hooks{.ask = [this] { send_to_all(Ask{}); },
                                    .show = [this](std::string_view text) { output_.say(text); }});
}

void Job::say(const std::string& line) {
  if (status_) status_->make_way({});
  output_.say(fmt::format("hvdrun: {}\n", line));
}

void Job::say_verbosely(const std::string& line) {
  if (options_.verbose) say(line);
}

}  // namespace hvd::launcher
