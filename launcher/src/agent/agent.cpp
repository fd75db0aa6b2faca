#include "agent/agent.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <set>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/network_interfaces.hpp>
#include <hvd/core/internal/text.hpp>
#include <hvd/core/version.hpp>

#include "agent/host_binding.hpp"
#include "agent/own_part.hpp"
#include "agent/process_usage.hpp"
#include "base/descriptors.hpp"
#include "base/exit_codes.hpp"
#include "base/signals.hpp"
#include "base/text.hpp"
#include "plan/cpus.hpp"
#include "plan/this_host.hpp"
#include "supervise/guard.hpp"
#include "supervise/start_process.hpp"

namespace hvd::launcher {

using boost::system::error_code;

namespace {

// A node that a signal ends gives node 0 this time to read the signal.
constexpr std::chrono::milliseconds kFarewell{500};

// A scheduler may signal the guard of the agent, which passes the signal on, and the agent too.
// Within this time the signals are the same request.
constexpr std::chrono::milliseconds kSameRequest{1'000};

// An agent on another host ends if hvdrun sends nothing for this time. hvdrun prepares an agent as
// soon as the agent has greeted.
constexpr std::chrono::milliseconds kFirstFramePatience{30'000};

}  // namespace

Agent::Agent(UniqueFd input, UniqueFd output, UniqueFd stdin_of_first, AgentOptions options)
    : stream_(io_, std::move(input), std::move(output)),
      signals_(io_),
      heartbeat_(io_),
      leave_timer_(io_),
      ranks_(io_, Descendants::belong_to_the_group,
             {.on_exit =
                  [this](std::size_t index, const RankEnd& end) {
                    if (index < workers_.size()) workers_[index].socket.reset();
                    stream_.send(end);
                  },
              .on_output =
                  [this](std::size_t index, Stream stream, Bytes bytes) {
                    stream_.send(Output{
                        .rank = ranks_.rank(index), .stream = stream, .bytes = std::move(bytes)});
                  },
              .on_gone = [this] { stream_.send(Gone{}); },
              .on_done = [this] { stream_.send(Done{}); }}),
      gpus_(io_),
      stdin_of_first_(std::move(stdin_of_first)),
      options_(std::move(options)) {
  ::signal(SIGPIPE, SIG_IGN);
  for (const int signal : kForwardedSignals) {
    // SIGTERM also comes from the kernel, when the guard has died.
    if (signal == SIGTERM || !is_ignored(signal)) signals_.add(signal);
  }
}

int Agent::run() {
  watch_signals();
  stream_.greet();
  stream_.when_flushed([this] { on_flushed(); });
  stream_.start([this](const Frame& frame) { on_frame(frame); },
                // hvdrun has ended, or no longer needs this host.
                [this](const std::string&) { leave(); });
  if (options_.patience.count() > 0) watch_stream(options_.patience);
  try {
    io_.run();
  } catch (...) {
    ranks_.kill();
    throw;
  }
  return code_;
}

void Agent::leave() {
  stream_.close();  // the ends of ranks from here on are not reported: the agent causes them
  ranks_.kill();
  io_.stop();
}

/// Sends heartbeats, and leaves when hvdrun, its machine or the network has failed.
void Agent::watch_stream(std::chrono::milliseconds limit) {
  heartbeat_.start(
      limit, [this] { stream_.send(Beat{}); }, [this] { leave(); });
}

void Agent::watch_signals() {
  signals_.async_wait([this](error_code error, int signal) {
    if (error) return;
    on_signal(signal);
    watch_signals();
  });
}

/// A signal is for the ranks. They may leave their loop after the same step and save, so the agent
/// goes on when it has passed the signal on.
void Agent::on_signal(int signal) {
  const bool guarded = ::getppid() == parent_;
  if (guarded && !asks_to_end(signal)) {
    return options_.forwards_signals ? forward(signal) : ranks_.signal(signal);
  }
  const bool repeated = asked_.has_value();
  if (guarded && repeated && Clock::now() - *asked_ < kSameRequest) return;
  if (guarded && options_.forwards_signals) {
    asked_ = Clock::now();
    return forward(signal);
  }
  if (guarded && !repeated && ranks_.size() > 0) {
    asked_ = Clock::now();
    return ranks_.signal(signal);
  }
  code_ = kExitSignalBase + signal;
  leave();
}

/// Passes a user's signal on to the leading node. After a signal that asks to end, an agent that
/// was not prepared yet leaves: when the system has taken the frame, after `kFarewell`, or when
/// another signal comes.
void Agent::forward(int signal) {
  if (left_by_ != 0) return leave();
  stream_.send(Forward{.signal = signal});
  if (job_ || !asks_to_end(signal)) return;
  left_by_ = signal;
  code_ = kExitSignalBase + signal;
  leave_timer_.expires_after(kFarewell);
  leave_timer_.async_wait([this](error_code error) {
    if (!error) leave();
  });
}

/// Leaves after a signal. hvdrun may still wait for other nodes and not read the signal yet, so the
/// stream is closed in a way that keeps it.
void Agent::on_flushed() {
  if (left_by_ == 0) return;
  stream_.finish();
  stream_.drain(Clock::now() + kFarewell);
  leave();
}

void Agent::on_frame(const Frame& frame) {
  heartbeat_.heard();
  answered_ = true;
  try {
    if (const auto* job = std::get_if<Prepare>(&frame)) {
      Prepare own = *job;
      if (options_.own) apply_own_part(*options_.own, own);
      prepare(own);
    } else if (const auto* start = std::get_if<Launch>(&frame)) {
      Launch own = *start;
      if (options_.own) keep_identity(own.variables);
      launch(own);
    } else if (const auto* over = std::get_if<Finished>(&frame)) {
      if (options_.on_finished) options_.on_finished(*over);
    } else if (std::holds_alternative<StatusRequest>(frame)) {
      send_status();
    } else if (std::holds_alternative<Beat>(frame)) {
      if (!job_) heartbeat_.set_limit(LinkHeartbeat::limit(options_.host_timeout));
    } else if (std::holds_alternative<Suspend>(frame)) {
      heartbeat_.expect_silence();
    } else if (const auto* forward = std::get_if<Forward>(&frame)) {
      ranks_.signal(forward->signal);
    } else if (const auto* last = std::get_if<End>(&frame)) {
      if (!std::exchange(launched_, true)) ranks_.watch();  // nothing starts from here on
      ranks_.end(*last);
    } else if (const auto* more = std::get_if<Credit>(&frame)) {
      ranks_.add_credit(more->bytes);
    } else if (job_ && job_->workers > 0 && launched_) {
      on_elastic_frame(frame);
    }
  } catch (const LaunchError& error) {
    refuse(error.code(), error.what());
  } catch (const Error& error) {
    refuse(exit_code(error), error.what());
  }
}

void Agent::on_elastic_frame(const Frame& frame) {
  if (const auto* start = std::get_if<StartWorker>(&frame)) {
    if (!ranks_.ending()) start_worker(*start);
  } else if (const auto* last = std::get_if<KillWorker>(&frame)) {
    if (const auto index = running_worker(last->rank)) ranks_.kill(*index);
  } else if (const auto* message = std::get_if<ElasticMessage>(&frame)) {
    pass_on(*message);
  } else if (const auto* store = std::get_if<Serve>(&frame)) {
    if (!ranks_.ending()) serve(*store);
  }
}

void Agent::prepare(const Prepare& frame) {
  if (job_) return;
  if (frame.version != version()) {
    throw LaunchError(kExitProtocol, fmt::format("hvdrun is {} there and {} on {}", frame.version,
                                                 version(), own_host_name()));
  }
  job_ = frame;
  if (options_.patience.count() > 0) stream_.send(Suspend{});  // the next steps may block
  if (::chdir(frame.directory.c_str()) != 0) {
    throw LaunchError(kExitNotFound, fmt::format("cannot change to {}: {}",
                                                 in_quotes(frame.directory), error_text(errno)));
  }
  variables_ = merge(inherited_variables(own_environment()), frame.environment);
  if (!frame.interfaces.empty()) {
    variables_ =
        merge(interface_variables(reachable_address(frame.interfaces).interface), variables_);
  }
  path_ = find_program(frame.program.front(), value_of(variables_of_first(), "PATH"));
  share_cores(frame.workers > 0 ? frame.workers : static_cast<int>(frame.ranks.size()));
  secret_ = frame.secret.to_inheritable_fd();
  Prepared prepared{.hostname = own_host_name(), .threads = threads_, .unbound = binding_.unbound};
  if (frame.rendezvous != RendezvousReach::elsewhere) {
    serve_store(frame.epoch, frame.rendezvous);
    prepared.store = rendezvous_->store();
    prepared.master_host = rendezvous_->host();
    prepared.master_port = rendezvous_->port();
  }
  if (frame.host_timeout.count() > 0) {
    watch_stream(LinkHeartbeat::limit_with_ranks(frame.host_timeout));
  }
  stream_.send(prepared);
}

/// Returns the variables of the first rank of this host, or those that all workers have.
Variables Agent::variables_of_first() const {
  return job_->ranks.empty() ? variables_ : merge(variables_, job_->ranks[0].variables);
}

/// Shares out the cores of the host to so many ranks. Those that run keep what they have.
void Agent::share_cores(int ranks) {
  sharers_ = ranks;
  const Variables of_first = variables_of_first();
  held_ = HeldCores();  // the new plan may have cores of the old one
  try {
    binding_ = bind_host(job_->binding, ranks, of_first, held_);
  } catch (const LaunchError&) {
    if (!launched_) throw;  // there is no old plan
    // A host with too few cores for so many workers goes on with the old plan, which may be to bind
    // none, as where other jobs held the cores.
    (void)held_.hold(binding_.cores);
  }
  if (contains(of_first, "OMP_NUM_THREADS")) return;
  threads_ = omp_threads(ranks);
  for (const Cpus& cpus : binding_.cpus) {
    threads_ = std::min(threads_, static_cast<int>(cpus.size()));
  }
}

void Agent::serve_store(std::uint32_t epoch, RendezvousReach reach) {
  const BlockSignals blocked;  // this thread, not the new one, receives SIGCHLD
  rendezvous_.emplace(Rendezvous::Options{.job_id = job_->job_id,
                                          .epoch = epoch,
                                          .several_machines = reach == RendezvousReach::network,
                                          .interfaces = job_->interfaces,
                                          .secret = job_->secret});
}

void Agent::launch(const Launch& frame) {
  if (!job_ || launched_) return;
  launched_ = true;
  variables_ = merge(variables_, frame.variables);
  if (job_->workers > 0) {
    ranks_.stay_open();
    ranks_.watch();
    return;
  }
  start_next_rank();
}

/// Starts one rank and posts the next start, so that between two ranks the loop sends heartbeats
/// and receives frames.
void Agent::start_next_rank() {
  if (ranks_.ending()) return all_started();
  try {
    if (ranks_.size() < job_->ranks.size()) {
      start_rank(job_->ranks[ranks_.size()], ranks_.size());
    }
  } catch (const LaunchError& error) {
    give_up(error.code(), error.what());
    return;
  }
  if (ranks_.size() == job_->ranks.size()) return all_started();
  boost::asio::post(io_, [this] { start_next_rank(); });
}

/// Ends all ranks, because one of them could not be started. `Refused` takes the place of `Done`.
void Agent::give_up(int code, const std::string& why) {
  ranks_.abandon();
  refuse(code, why);
}

void Agent::all_started() {
  secret_.reset();
  stdin_of_first_.reset();
  ranks_.watch();
}

/// Starts a rank with the cores of local rank `place`. `request` has what only this rank gets.
void Agent::start_rank(const Prepare::Rank& rank, std::size_t place, StartRequest request) {
  Variables added = {fmt::format("HVD_SECRET_FD={}", secret_.get())};
  if (threads_ > 0) added.push_back(fmt::format("OMP_NUM_THREADS={}", threads_));
  const UniqueFd null = open_null();
  if (place < binding_.cpus.size()) request.cpus = binding_.cpus[place];
  request.path = path_;
  request.arguments = job_->program;
  request.variables = merge(merge(variables_, rank.variables), merge(added, request.variables));
  request.input = place == 0 && stdin_of_first_ ? stdin_of_first_.get() : null.get();
  request.die_with_parent = true;
  const pid_t pid = ranks_.start(rank.rank, request);
  stream_.send(Started{.rank = rank.rank, .pid = pid, .cpus = cpu_list(request.cpus)});
}

// ---- an elastic job

/// The other workers of the host go on when a worker cannot be started.
void Agent::start_worker(const StartWorker& frame) {
  try {
    if (frame.workers != sharers_) share_cores(frame.workers);
    SocketPair pair = make_socket_pair(SOCK_SEQPACKET);
    auto socket = std::make_unique<WorkerSocket>(
        io_, std::move(pair.ours), [this, rank = frame.rank](Bytes bytes) {
          if (!running_worker(rank)) return;
          stream_.send(ElasticMessage{.rank = rank, .bytes = std::move(bytes)});
        });
    const std::size_t place = free_place();
    StartRequest request;
    request.variables = {fmt::format("HVD_ELASTIC_FD={}", pair.theirs.get()),
                         fmt::format("HVD_WORKER={}", frame.rank),
                         fmt::format("HVD_WORKER_PLACE={}", place)};
    request.inherited = {pair.theirs.get()};
    start_rank({.rank = frame.rank, .variables = {}}, place, std::move(request));
    workers_.push_back({.place = place, .socket = std::move(socket)});
    asked_.reset();
  } catch (const LaunchError& error) {
    report_not_started(frame.rank, error);
  }
}

/// Reports an end with the exit code that a shell would have, and the reason as the worker's output
/// on stderr, unless so much output waits that there is no credit for it.
void Agent::report_not_started(int worker, const LaunchError& error) {
  stream_.send(Exited{.rank = worker, .status = W_EXITCODE(error.code(), 0)});
  const std::string why = fmt::format("hvdrun: {}\n", error.what());
  if (!ranks_.use_credit(why.size())) return;
  const auto bytes = detail::bytes_of(why);
  stream_.send(
      Output{.rank = worker, .stream = Stream::err, .bytes = Bytes(bytes.begin(), bytes.end())});
}

/// A worker that has not read what it was told before is killed: it would never get this message.
void Agent::pass_on(const ElasticMessage& message) {
  const auto index = running_worker(message.rank);
  if (index && !workers_[*index].socket->send(message.bytes)) ranks_.kill(*index);
}

void Agent::serve(const Serve& frame) {
  serve_store(frame.generation, frame.reach);
  stream_.send(Served{.generation = frame.generation,
                      .store = rendezvous_->store(),
                      .master_host = rendezvous_->host(),
                      .master_port = rendezvous_->port()});
}

std::optional<std::size_t> Agent::running_worker(int number) const {
  for (std::size_t index = 0; index < workers_.size(); ++index) {
    if (ranks_.rank(index) == number && ranks_.running(index)) return index;
  }
  return std::nullopt;
}

std::size_t Agent::free_place() const {
  std::set<std::size_t> taken;
  for (std::size_t index = 0; index < workers_.size(); ++index) {
    if (ranks_.running(index)) taken.insert(workers_[index].place);
  }
  std::size_t place = 0;
  while (taken.contains(place)) ++place;
  return place;
}

/// Sends the resource use of the ranks as soon as it is measured, and each rank's answer when it
/// arrives.
void Agent::send_status() {
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    if (!ranks_.running(index)) continue;
    ranks_.inquiry(index).ask([this, rank = ranks_.rank(index)](Bytes bytes) {
      stream_.send(RankAnswer{.rank = rank, .bytes = std::move(bytes)});
    });
  }
  // NVML is opened only after all ranks are started, because they would inherit its descriptors. In
  // an elastic job more may come.
  if (!ranks_.watching() || ranks_.ending() || !workers_.empty()) return send_usage({});
  gpus_.look([this](std::span<const GpuState> gpus) { send_usage(gpus); });
}

void Agent::send_usage(std::span<const GpuState> gpus) {
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    if (!ranks_.running(index)) continue;
    const ProcessUsage usage = usage_of(ranks_.pid(index), gpus);
    stream_.send(RankUsage{.rank = ranks_.rank(index),
                           .cpu = usage.cpu,
                           .memory = usage.memory,
                           .gpu_memory = usage.gpu.memory,
                           .gpu_load = usage.gpu.load});
  }
}

void Agent::refuse(int code, const std::string& message) {
  stream_.send(Refused{.code = code, .message = message});
}

// ---- the process of an agent

namespace {

int run_on_standard_streams(UniqueFd stdin_of_first, AgentOptions options) {
  UniqueFd input = duplicate(STDIN_FILENO);
  UniqueFd output = duplicate(STDOUT_FILENO);
  ::prctl(PR_SET_NAME, "hvdrun-agent");
  // Output that is printed by accident must not get between the frames.
  const UniqueFd null = open_null();
  ::dup2(null.get(), STDIN_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  return Agent(std::move(input), std::move(output), std::move(stdin_of_first), std::move(options))
      .run();
}

}  // namespace

int run_agent(int stdin_of_first) {
  if (stdin_of_first >= 0) close_on_exec(stdin_of_first);
  return run_on_standard_streams(UniqueFd(stdin_of_first), {});
}

int run_remote_agent(int own_part) {
  const auto work = [own_part] {
    AgentOptions options;
    if (own_part >= 0) {
      options.own = read_own_part(own_part);  // another program watches the stream
    } else {
      options.patience = options.host_timeout = kFirstFramePatience;
    }
    return run_on_standard_streams(UniqueFd(), std::move(options));
  };
  // hvdrun puts "hvdrun: HOST: " in front of what the agent prints.
  return exit_code(run_guarded(work, ""));
}

}  // namespace hvd::launcher
