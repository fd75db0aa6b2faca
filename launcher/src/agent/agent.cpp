#include "agent/agent.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <set>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/network_interfaces.hpp>
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
#include "supervise/start_process.hpp"

namespace hvd::launcher {

using boost::system::error_code;

namespace {

// A node that a signal ends gives node 0 this time to read the signal.
constexpr std::chrono::milliseconds kFarewell{500};

}  // namespace

Agent::Agent(UniqueFd input, UniqueFd output, UniqueFd stdin_of_first, AgentOptions options)
    : stream_(io_, std::move(input), std::move(output)),
      end_signal_(io_),
      heartbeat_(io_),
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
  if (options_.user < 0) {
    end_signal_.add(SIGTERM);
    return;
  }
  for (const int signal : kForwardedSignals) end_signal_.add(signal);
}

int Agent::run() {
  watch_end_signals();
  stream_.greet();
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

void Agent::watch_end_signals() {
  end_signal_.async_wait([this](error_code error, int signal) {
    if (error) return;
    if (options_.user >= 0 && ::getppid() == options_.user) {
      stream_.send(Forward{.signal = signal});
      if (!job_ && asks_to_end(signal)) {
        // There are no ranks to end. hvdrun may still wait for other nodes, and then it does not
        // read the signal.
        left_by_ = signal;
        code_ = kExitSignalBase + signal;
        stream_.finish();
        stream_.drain(Clock::now() + kFarewell);
        return leave();
      }
      watch_end_signals();
      return;
    }
    // The host of an elastic job is about to be taken away. Its workers leave after the step. When
    // the agent's guard has been killed, the signal comes from the kernel.
    const bool is_notice = signal == SIGTERM && job_ && job_->workers > 0 && ranks_.any_running() &&
                           ::getppid() == parent_;
    if (is_notice && !std::exchange(asked_, true)) {
      ranks_.signal(signal);
      watch_end_signals();
      return;
    }
    code_ = kExitSignalBase + signal;
    leave();
  });
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
  try {
    if (const auto* start = std::get_if<StartWorker>(&frame)) {
      if (!ranks_.ending()) start_worker(*start);
    } else if (const auto* last = std::get_if<KillWorker>(&frame)) {
      if (const auto index = running_worker(last->rank)) ranks_.kill(*index);
    } else if (const auto* message = std::get_if<ElasticMessage>(&frame)) {
      pass_on(*message);
    } else if (const auto* store = std::get_if<Serve>(&frame)) {
      if (!ranks_.ending()) serve(*store);
    }
  } catch (const LaunchError& error) {
    give_up(error.code(), error.what());
  } catch (const Error& error) {
    give_up(exit_code(error), error.what());
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
  const Variables of_first =
      frame.ranks.empty() ? variables_ : merge(variables_, frame.ranks[0].variables);
  path_ = find_program(frame.program.front(), value_of(of_first, "PATH"));
  const int ranks = frame.workers > 0 ? frame.workers : static_cast<int>(frame.ranks.size());
  binding_ = bind_host(frame.binding, ranks, of_first, held_);
  if (!contains(of_first, "OMP_NUM_THREADS")) {
    threads_ = omp_threads(ranks);
    for (const Cpus& cpus : binding_.cpus) {
      threads_ = std::min(threads_, static_cast<int>(cpus.size()));
    }
  }
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

void Agent::start_worker(const StartWorker& frame) {
  InquiryPair pair = make_inquiry_pair();
  const std::size_t place = free_place();
  StartRequest request;
  request.variables = {fmt::format("HVD_ELASTIC_FD={}", pair.of_rank.get()),
                       fmt::format("HVD_WORKER={}", frame.rank),
                       fmt::format("HVD_WORKER_PLACE={}", place)};
  request.inherited = {pair.of_rank.get()};
  start_rank({.rank = frame.rank, .variables = {}}, place, std::move(request));
  workers_.push_back({.place = place,
                      .socket = std::make_unique<WorkerSocket>(
                          io_, std::move(pair.ours), [this, rank = frame.rank](Bytes bytes) {
                            if (!running_worker(rank)) return;
                            stream_.send(ElasticMessage{.rank = rank, .bytes = std::move(bytes)});
                          })});
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

}  // namespace hvd::launcher
