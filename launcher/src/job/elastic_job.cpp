#include "job/elastic_job.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <sys/wait.h>

#include <hvd/core/error.hpp>

#include "base/exit_codes.hpp"
#include "base/signals.hpp"
#include "base/text.hpp"
#include "job/report.hpp"
#include "plan/launcher_choice.hpp"
#include "plan/plan.hpp"
#include "plan/this_host.hpp"
#include "supervise/descendants.hpp"
#include "supervise/rendezvous.hpp"

namespace hvd::launcher {
namespace {

using boost::system::error_code;
using std::chrono::milliseconds;

static_assert(Membership::kExitRetry == kExitRetry);

// After this time a host whose agent cannot be started counts as lost. It limits the number of
// tries if there is no cooldown.
constexpr milliseconds kUnreachable{100};

Membership::Options membership_options(const ElasticOptions& options) {
  return {.min_np = options.min_np,
          .max_np = options.max_np,
          .timeout = options.timeout,
          .reset_limit = options.reset_limit,
          .least_cooldown = options.least_cooldown,
          .most_cooldown = options.most_cooldown};
}

}  // namespace

ElasticJob::ElasticJob(Options options, std::vector<HostSpec> hosts)
    : JobBase(options,
              {.ranks = 0,
               .lines = {.prefix = options.prefix, .timestamps = options.timestamps},
               .files = {.directory = options.output_directory, .process = "worker"}},
              {.job_id = random_job_id(),
               .secret = Secret::random(),
               .own = own_environment(),
               .several_machines = options.launcher != Launcher::local}),
      membership_timer_(io_),
      limit_timer_(io_),
      membership_(membership_options(options_.elastic)),
      fixed_hosts_(std::move(hosts)) {
  spec_.forwarding = forwarded_variables(spec_.own, options_.exports);
}

int ElasticJob::run() {
  open(plan_);
  if (options_.timeout) {
    limit_timer_.expires_after(*options_.timeout);
    limit_timer_.async_wait([this](error_code error) {
      if (error) return;
      fail(kExitDeadline, time_is_over(*options_.timeout));
    });
  }
  const ElasticOptions& elastic = options_.elastic;
  if (elastic.discovery_script.empty()) {
    on_discovered(fixed_hosts_);
  } else {
    discovery_.emplace(
        io_,
        HostDiscovery::Options{.command = elastic.discovery_script,
                               .variables = spec_.own,
                               .slots = elastic.slots_per_host,
                               .limit = options_.start_timeout_or_default()},
        HostDiscovery::Handlers{
            .on_hosts = [this](const std::vector<HostSpec>& listed) { on_discovered(listed); },
            .on_failure = [this](const std::string& why) { on_discovery_failure(why); }});
  }
  io_.run();
  hold_forwarded_signals();
  return code_;
}

// ---- hosts

void ElasticJob::on_discovered(const std::vector<HostSpec>& listed) {
  if (ending_) return;
  std::vector<std::string> words;
  for (const HostSpec& host : listed) words.push_back(fmt::format("{}:{}", host.name, host.slots));
  std::string hosts = words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
  const std::string before = std::exchange(last_listed_, hosts);
  if (before != hosts) {
    report(fmt::format("the hosts are {}", hosts), !before.empty() || options_.verbose);
  }
  last_complaint_.clear();
  obey(membership_.on_hosts(known_hosts_.list(listed), Clock::now()));
}

void ElasticJob::on_discovery_failure(const std::string& why) {
  if (ending_) return;
  if (last_listed_.empty()) return fail(kExitUsage, why);
  if (std::exchange(last_complaint_, why) != why) say(fmt::format("{}; hvdrun tries again", why));
}

void ElasticJob::start_agent(std::size_t index) {
  while (hosts_.size() <= index) {
    spec_.remote.push_back(is_remote(known_hosts_.all()[hosts_.size()], options_.launcher));
    hosts_.push_back({.over = true});
    agents_.emplace_back(io_);
  }
  Host& host = hosts_[index];
  Agent& agent = agents_[index];
  if (!host.over || agent.unreachable) return;
  host.session = AgentSession();
  agent.orders.clear();
  try {
    host.link = std::make_unique<AgentLink>(
        io_, spec_.command(options_, index, known_hosts_.all()[index], -1));
  } catch (const LaunchError& error) {
    if (membership_.generation() == 0) throw;
    // Other hosts train. The host is lost later, because the caller carries out more orders, which
    // may be for the same host.
    agent.unreachable = true;
    agent.start_timer.expires_after(kUnreachable);
    agent.start_timer.async_wait([this, index, why = std::string(error.what())](error_code) {
      agents_[index].unreachable = false;
      if (ending_) return;
      report(why);
      obey(membership_.on_host_lost(index, Clock::now()));
    });
    return;
  }
  host.over = false;
  host.link->start(
      options_.host_timeout,
      {.on_ready =
           [this, index] {
             Prepare frame = spec_.prepare(options_, Plan(), index);
             // The agent looks for the program in this PATH, and keeps the values
             // of OMP_NUM_THREADS and CUDA_VISIBLE_DEVICES.
             frame.environment =
                 merge(frame.environment, exported_variables(options_.exports, spec_.own));
             frame.rendezvous = RendezvousReach::elsewhere;
             frame.workers = workers_on(index);
             hosts_[index].link->send(frame);
           },
       .on_frame = [this, index](const Frame& frame) { on_frame(index, frame); },
       .on_flushed = [this] { on_flushed(); },
       .on_stderr = [this, index](const std::string& text) { on_stderr(index, text); },
       .on_lost = [this, index](
                      const AgentLoss& loss) { lose(index, explain(loss, name_of(index)).what); }});
  const milliseconds limit = options_.start_timeout_or_default();
  agent.start_timer.expires_after(limit);
  agent.start_timer.async_wait([this, index, limit, link = host.link.get()](error_code error) {
    const Host& late = hosts_[index];
    if (error || late.link.get() != link || late.over || late.session.prepared()) return;
    lose(index, fmt::format("{}: its agent has not started within {:.1f} s (--start-timeout)",
                            name_of(index), in_seconds(limit)));
  });
}

void ElasticJob::on_frame(std::size_t index, const Frame& frame) {
  Host& host = hosts_[index];
  if (host.over || host.session.broken()) return;
  if (const auto wrong = host.session.on_frame(frame)) {
    return lose(index,
                fmt::format("{} does not keep hvdrun's protocol: {}", name_of(index), *wrong));
  }
  if (std::holds_alternative<Prepared>(frame)) {
    agents_[index].start_timer.cancel();
    const Launch launch{.variables = {fmt::format("HVD_JOB_ID={}", spec_.job_id)}};
    std::vector<Frame> orders = std::exchange(agents_[index].orders, {});
    orders.insert(orders.begin(), launch);
    for (const Frame& one : orders) {
      host.session.on_sent(one);
      host.link->send(one);
    }
  } else if (const auto* refused = std::get_if<Refused>(&frame)) {
    const std::string why = fmt::format("{}: {}", name_of(index), refused->message);
    if (membership_.generation() > 0) return lose(index, why);
    host.over = true;
    fail(refused->code, why);
  } else if (const auto* started = std::get_if<Started>(&frame)) {
    worker_at(started->rank).pid = started->pid;
    worker_at(started->rank).cpus = started->cpus;
    report(fmt::format("{} has started", name_of_worker(started->rank)), options_.verbose);
  } else if (const auto* text = std::get_if<Output>(&frame)) {
    on_output(*text);
  } else if (const auto* message = std::get_if<ElasticMessage>(&frame)) {
    on_message(*message);
  } else if (const auto* served = std::get_if<Served>(&frame)) {
    on_served(*served);
  } else if (const auto* exited = std::get_if<Exited>(&frame)) {
    on_exited(*exited);
  } else if (const auto* usage = std::get_if<RankUsage>(&frame)) {
    RankUsage of_rank = *usage;
    of_rank.rank = rank_of(usage->rank);
    if (of_rank.rank >= 0) status_->heard(of_rank);
  } else if (const auto* answer = std::get_if<RankAnswer>(&frame)) {
    const int rank = rank_of(answer->rank);
    if (rank >= 0) status_->heard(RankAnswer{.rank = rank, .bytes = answer->bytes});
  } else if (std::holds_alternative<Done>(frame)) {
    host.over = true;
  }
  check_over();
}

int ElasticJob::rank_of(int worker) {
  const Worker& self = worker_at(worker);
  return self.generation == generation_ ? self.rank : -1;
}

/// The host counts as lost with all its workers. Another agent may be started there later.
void ElasticJob::lose(std::size_t index, const std::string& why) {
  Host& host = hosts_[index];
  if (host.over) return on_flushed();  // what it has not got cannot be sent any more
  host.over = true;
  agents_[index].start_timer.cancel();
  host.link->close();
  lost_.push_back(std::move(host.link));
  for (auto& link : lost_) {
    if (link->ended()) AgentLink::destroy_later(io_, std::move(link));
  }
  std::erase(lost_, nullptr);
  if (!spec_.remote[index]) bury_workers(index);
  end_output(index);
  if (!ending_) {
    report(why);
    std::vector<int> waiting;  // members that were not told of the generation
    if (forming_ && membership_.host_of(forming_->form.workers.front()) == index) {
      waiting = std::exchange(forming_, std::nullopt)->form.workers;
    }
    const std::uint32_t generation = membership_.generation();
    obey(membership_.on_host_lost(index, Clock::now()));
    for (const int worker : waiting) {
      obey(membership_.on_waits(worker, {.generation = generation, .start_failed = true},
                                Clock::now()));
    }
  } else if (!failed()) {
    say(fmt::format("{}; {}", why, kMayLackOutput));
  }
  check_over();
}

/// Nothing more comes from the workers of a lost host.
void ElasticJob::end_output(std::size_t index) {
  for (int worker = 0; worker < static_cast<int>(workers_.size()); ++worker) {
    if (membership_.host_of(worker) == index) output_.ended(worker);
  }
}

/// Ends what a lost agent of this machine leaves behind, which this process has adopted.
void ElasticJob::bury_workers(std::size_t index) {
  kill_strays(spec_.job_id, Clock::now() + kAgentPatience);
  for (const int worker : hosts_[index].session.running_ranks()) {
    (void)::waitpid(worker_at(worker).pid, nullptr, WNOHANG);
  }
}

// ---- workers

void ElasticJob::on_message(const ElasticMessage& frame) {
  if (ending_) return tell(frame.rank, detail::Leave{});
  try {
    const detail::Waits waits = detail::decode_waits(frame.bytes);
    if (waits.leaves && !std::exchange(worker_at(frame.rank).leaves, true)) {
      report(fmt::format("{} leaves, since it was asked to stop", name_of_worker(frame.rank)));
    }
    // The generation was only starting, so its ranks could not agree on a step.
    if (waits.start_failed && announced_ != 0) stop_signal_ = announced_;
    obey(membership_.on_waits(frame.rank, waits, Clock::now()));
  } catch (const Error& error) {
    carry_out(Membership::Kill{.worker = frame.rank, .why = error.what()});
  }
}

void ElasticJob::on_served(const Served& frame) {
  if (ending_ || !forming_ || forming_->form.generation != frame.generation) return;
  const Forming forming = *std::exchange(forming_, std::nullopt);
  std::vector<HostSpec> hosts;
  std::vector<std::size_t> indices;
  std::vector<std::string> machines;
  for (const int worker : forming.form.workers) {
    const std::size_t host = membership_.host_of(worker);
    if (indices.empty() || indices.back() != host) {
      indices.push_back(host);
      hosts.push_back(known_hosts_.all()[host]);
      hosts.back().slots = 0;
      // This machine may have several names.
      machines.push_back(spec_.remote[host] ? name_of(host) : "");
    }
    ++hosts.back().slots;
  }
  plan_ = plan_ranks(hosts, machines);
  generation_ = frame.generation;
  status_->regroup(plan_);
  const Variables common = job_variables({.id = spec_.job_id,
                                          .restart_count = frame.generation,
                                          .store = frame.store,
                                          .master_host = frame.master_host,
                                          .master_port = frame.master_port});
  for (const Placement& at : plan_.ranks) {
    const int worker = forming.form.workers[static_cast<std::size_t>(at.rank)];
    Worker& self = worker_at(worker);
    self.rank = at.rank;
    self.generation = frame.generation;
    status_->started({.rank = at.rank, .pid = self.pid, .cpus = self.cpus});
    tell(worker, detail::Assignment{.generation = frame.generation,
                                    .variables = merge(common, rank_variables(at, plan_))});
  }
  for (const Membership::Tell& later : forming.later) tell(later.worker, later.order);
}

void ElasticJob::on_exited(const Exited& frame) {
  if (ending_) return;
  const int code = exit_code(frame.status);
  if (code != 0) last_failed_ = frame.rank;
  // While its first generation starts, a worker dies of the signal.
  if (announced_ != 0 && code == kExitSignalBase + announced_) stop_signal_ = announced_;
  const std::string how = WIFSIGNALED(frame.status)
                              ? fmt::format("was killed by {}", signal_name(WTERMSIG(frame.status)))
                              : fmt::format("exited {}", code);
  report(fmt::format("{} {} after {:.1f} s", name_of_worker(frame.rank), how,
                     in_seconds(frame.elapsed)),
         code != 0);
  output_.ended(frame.rank);
  if (const int rank = rank_of(frame.rank); rank >= 0) status_->ended(rank);
  obey(membership_.on_exit(frame.rank, code, Clock::now()));
}

auto ElasticJob::worker_at(int worker) -> Worker& {
  const auto index = static_cast<std::size_t>(worker);
  if (index >= workers_.size()) workers_.resize(index + 1);
  return workers_[index];
}

int ElasticJob::workers_on(std::size_t host) const {
  return std::min(known_hosts_.all()[host].slots, options_.elastic.max_np);
}

std::string ElasticJob::name_of(std::size_t host) const { return known_hosts_.all()[host].name; }

/// Returns text such as "worker 2 on a (pid 123, rank 1 of generation 3)". A worker without a pid
/// could not be started.
std::string ElasticJob::name_of_worker(int worker) {
  const Worker& self = worker_at(worker);
  const std::string host = name_of(membership_.host_of(worker));
  if (self.pid == 0) return fmt::format("worker {} on {} (never started)", worker, host);
  const std::string rank =
      self.rank < 0 ? ", never a rank"
                    : fmt::format(", rank {} of generation {}", self.rank, self.generation);
  return fmt::format("worker {} on {} (pid {}{})", worker, host, self.pid, rank);
}

// ---- orders

void ElasticJob::obey(const Membership::Orders& orders) {
  for (const Membership::Order& order : orders) {
    std::visit([this](const auto& one) { carry_out(one); }, order);
  }
  membership_timer_.cancel();
  const auto due = membership_.wake_up();
  if (!due || ending_) return;
  membership_timer_.expires_at(*due);
  membership_timer_.async_wait([this](error_code error) {
    if (!error && !ending_) obey(membership_.on_time(Clock::now()));
  });
}

void ElasticJob::carry_out(const Membership::Start& start) {
  start_agent(start.host);
  worker_at(start.worker) = {};
  order(start.host, StartWorker{.rank = start.worker, .workers = workers_on(start.host)});
}

void ElasticJob::carry_out(const Membership::Form& form) {
  const std::size_t host = membership_.host_of(form.workers.front());
  report(fmt::format("generation {} has {} ranks: workers {}", form.generation, form.workers.size(),
                     rank_ranges(form.workers)),
         options_.verbose || form.generation > 1);
  const bool several = std::any_of(form.workers.begin(), form.workers.end(), [&](int worker) {
    const std::size_t other = membership_.host_of(worker);
    return other != host && (spec_.remote[other] || spec_.remote[host]);
  });
  forming_ = Forming{.form = form};
  announced_ = stop_signal_ = 0;
  order(host, Serve{.generation = form.generation,
                    .reach = several ? RendezvousReach::network : RendezvousReach::machine});
}

/// An order that precedes the assignment of its worker would mean nothing to it.
void ElasticJob::carry_out(const Membership::Tell& order) {
  const auto is_forming = [&] {
    const auto& workers = forming_->form.workers;
    return std::find(workers.begin(), workers.end(), order.worker) != workers.end();
  };
  if (forming_ && is_forming()) {
    forming_->later.push_back(order);
  } else {
    tell(order.worker, order.order);
  }
}

void ElasticJob::carry_out(const Membership::Kill& kill) {
  report(fmt::format("killing {}: {}", name_of_worker(kill.worker), kill.why));
  order(membership_.host_of(kill.worker), KillWorker{.rank = kill.worker});
}

/// Workers that were asked to stop when no generation ran have all left, so none is left with the
/// state.
void ElasticJob::carry_out(const Membership::Finish& order) {
  const bool asked = order.code == kExitRetry && stop_signal_ != 0;
  fail(asked ? kExitSignalBase + stop_signal_ : order.code, order.why);
}

void ElasticJob::order(std::size_t index, const Frame& frame) {
  Host& host = hosts_.at(index);
  if (host.over) return;
  if (!host.session.prepared()) {
    agents_[index].orders.push_back(frame);
    return;
  }
  host.session.on_sent(frame);
  host.link->send(frame);
}

void ElasticJob::tell(int worker, const detail::ElasticOrder& message) {
  order(membership_.host_of(worker), ElasticMessage{.rank = worker, .bytes = encode(message)});
}

// ---- the end

void ElasticJob::fail(int code, const std::string& what) {
  end(code, what, {.signal = SIGTERM, .grace = JobPolicy::kFailureGrace});
}

void ElasticJob::on_end_signal(int signal) {
  if (failed()) return send_end(End{.signal = SIGKILL});
  end(kExitSignalBase + signal, received_signal(signal),
      {.signal = signal, .grace = options_.grace});
}

/// Members that get one of these signals would otherwise leave each by itself.
void ElasticJob::before_signal(int signal) {
  if (ending_ || (signal != SIGTERM && signal != SIGUSR1)) return;
  report(fmt::format("passing on {}, so that the job stops", signal_name(signal)), false);
  announced_ = signal;
  if (forming_ || !membership_.runs()) stop_signal_ = signal;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const int worker = static_cast<int>(i);
    if (rank_of(worker) >= 0) tell(worker, detail::Stop{});
  }
}

void ElasticJob::end(int code, const std::string& why, const End& order) {
  if (failed()) return;
  const bool had_succeeded = std::exchange(ending_, true);
  code_ = code;
  if (!why.empty()) say(why);
  if (code != 0 && code < kExitSignalBase && !had_succeeded) quoted_ = last_failed_;
  membership_timer_.cancel();
  if (discovery_) discovery_->stop();
  send_end(order);
}

/// All output has arrived now, also that of the worker whose end was the last event.
void ElasticJob::report_end() {
  if (!quoted_) return;
  output_.say(fmt::format("hvdrun: the last lines of worker {}:\n", *quoted_));
  for (const Tail::Line& line : output_.tail(*quoted_)) {
    output_.say(fmt::format("  [{}]<{}>:{}\n", *quoted_,
                            line.stream == Stream::out ? "stdout" : "stderr", line.text));
  }
}

void ElasticJob::report(const std::string& change, bool loudly) {
  status_->remember(change);
  if (loudly) say(change);
}

}  // namespace hvd::launcher
