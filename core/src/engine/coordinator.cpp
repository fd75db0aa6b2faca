#include "engine/coordinator.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/internal/text.hpp>
#include <hvd/core/log.hpp>
#include <hvd/core/timeline.hpp>

#include "base/error_file.hpp"
#include "engine/decision_checks.hpp"

namespace hvd::detail {
namespace {

// Rank 0 waits this long for better evidence before it believes a rank that may be a victim itself.
constexpr std::chrono::milliseconds kSettle{200};

// The time for which a frozen collective waits for other ranks, or for this rank to submit the rest
// of it, before the schedule is thawed. The negotiation then finds out and reports which rank is
// missing.
constexpr std::chrono::seconds kFrozenPatience{1};

// How often a rank looks whether its last message has arrived.
constexpr std::chrono::milliseconds kDeliveryInterval{1};

Protocol::Settings protocol_settings(const Session& session, bool can_freeze) {
  const Config& config = session.config();
  Protocol::Settings settings;
  settings.rank = session.topology().rank;
  settings.size = session.topology().size;
  settings.fanout = config.control_fanout;
  settings.fusion_threshold = config.fusion_threshold;
  settings.freeze_after = can_freeze ? config.freeze_after : 0;
  settings.detector = {config.heartbeat_interval, config.peer_timeout,
                       std::max(config.host_timeout, config.peer_timeout), kSettle};
  settings.stall_warn = config.stall_warn;
  settings.stall_abort = config.stall_abort;
  return settings;
}

TimelineOptions timeline_options(const Session& session) {
  TimelineOptions options;
  options.rank = session.topology().rank;
  options.host = session.topology().hostnames[static_cast<std::size_t>(options.rank)];
  return options;
}

std::unique_ptr<StepTuner> make_tuner(const Session& session) {
  const Config& config = session.config();
  if (!config.autotune || session.topology().rank != 0) return nullptr;
  return std::make_unique<StepTuner>(StepTuner::Settings{
      usual_sizes(config.fusion_threshold), config.autotune_cycles, config.autotune_log});
}

// The index by which device backends mean this rank's own device, whatever its number.
constexpr std::int32_t kOwnDevice = -1;

/// Drops everything that the submission refers to.
void release(Submission& submission) {
  submission.allocate = nullptr;
  submission.report = nullptr;
  submission.finish = nullptr;
  submission.ready.reset();
  submission.keep_alive.reset();
}

/// With `HVD_LOG=debug` rank 0 prints its decisions.
template <class... Args>
void log_decision(int rank, fmt::format_string<Args...> text, Args&&... args) {
  if (rank != 0 || !log_enabled(LogLevel::debug)) return;
  log(LogLevel::debug, rank, fmt::format(text, std::forward<Args>(args)...));
}

Error no_backend_runs(Executor& executor, Request request) {
  std::string why =
      fmt::format("no backend runs {} ({} {}, {})", described(request), to_string(request.dtype),
                  to_string(request.op), to_string(request.device));
  constexpr int kMostGpus = 64;
  for (int gpu = 0; request.device.kind == Device::Kind::cuda && gpu < kMostGpus; ++gpu) {
    request.device.index = gpu;
    if (!executor.supports(request)) continue;
    why += fmt::format("; this rank reduces tensors on {}, where its first one was",
                       to_string(request.device));
    break;
  }
  return {Errc::unsupported, why};
}

Error this_rank_has_shut_down() { return {Errc::shut_down, "this rank has shut down"}; }

}  // namespace

Coordinator::Coordinator(Session& session, std::unique_ptr<ControlChannel> channel,
                         std::vector<std::unique_ptr<Backend>> backends,
                         std::unique_ptr<ReadyFence> fence)
    : session_(session),
      rank_(session.topology().rank),
      size_(session.topology().size),
      began_(Clock::now()),
      channel_(std::move(channel)),
      observer_(timeline_options(session)),
      table_(rank_, size_),
      sets_(size_),
      protocol_(protocol_settings(session, fence || size_ == 1), *this, began_),
      timer_(session.loop(), session.config().heartbeat_interval, [this] { on_tick(); }),
      executor_(std::make_shared<Executor>(
          std::make_unique<CollectiveRunner>(std::move(backends), rank_, size_, observer_),
          std::move(fence), session.config().collective_timeout, table_,
          static_cast<Executor::Listener&>(*this))) {
  const Config& config = session_.config();
  if (config.metrics_port != 0) serve_metrics();
  if (config.status_fd >= 0) {
    reports_ =
        observe::ReportServer::on(session_.loop(), config.status_fd, [this] { return report(); });
    if (reports_) reports_->joined();
  }
  session_.loop().run_sync([this] {
    if (channel_) channel_->start(*this);
    timer_.start();
  });
  try {
    // These may wait for a disk, so they come after heartbeats have begun. The executor uses the
    // tuner only after this rank has submitted an operation; on the loop other ranks may freeze a
    // schedule before that.
    auto tuner = make_tuner(session_);
    session_.loop().run_sync([&] { tuner_ = std::move(tuner); });
    if (!config.timeline.empty()) observer_.timeline.start(timeline_path(config.timeline, rank_));
  } catch (...) {
    disconnect();
    throw;
  }
}

/// Serves metrics on a port of this rank's own: HVD_METRICS_PORT plus the local rank.
void Coordinator::serve_metrics() {
  const Topology& topology = session_.topology();
  const int port = session_.config().metrics_port + topology.local_rank;
  if (port > 65'535) {
    throw Error(Errc::invalid_argument,
                fmt::format("HVD_METRICS_PORT: {} plus the local rank {} is no port",
                            session_.config().metrics_port, topology.local_rank));
  }
  observe::MetricsOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.labels = {rank_, session_.config().job_id,
                    topology.hostnames[static_cast<std::size_t>(rank_)]};
  metrics_ = std::make_unique<observe::MetricsServer>(session_.loop(), options,
                                                      [this] { return observer_.stats(); });
}

/// Only the loop thread calls it.
RankReport Coordinator::report() const {
  const Stats stats = observer_.stats();
  RankReport report;
  report.rank = rank_;
  report.size = size_;
  report.steps = stats.step.count;
  report.step = stats.step.mean.duration;
  report.exposed = stats.step.mean.exposed;
  report.slowest = static_cast<std::int32_t>(stats.slowest_rank);
  report.slowest_cost = stats.slowest_cost;
  report.operations = stats.completed;
  report.bytes = stats.bytes;
  const auto waiting = table_.waiting(RankReport::kMaxPending);
  report.pending = static_cast<std::uint32_t>(waiting.count);
  for (const TensorTable::Oldest& one : waiting.oldest) {
    RankReport::Pending pending{one.name, one.kind, one.scheduled, {}, one.process_set, {}};
    pending.age = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::max(Clock::duration{0}, Clock::now() - one.since));
    if (one.process_set != 0) {
      if (const auto ranks = sets_.ranks(one.process_set)) pending.members = *ranks;
    }
    report.oldest.push_back(std::move(pending));
  }
  return report;
}

void Coordinator::stop_agreed() {
  session_.loop().run_sync([this] {
    if (reports_) reports_->stops();
  });
}

Coordinator::~Coordinator() { disconnect(); }

void Coordinator::disconnect() noexcept {
  const std::lock_guard once(shutdown_mutex_);
  shut_down_ = true;
  {
    // After `abort` rank 0's verdict proves that rank 0 has got the reason. If this process ended
    // before, a silent link could lose it.
    std::unique_lock lock(end_mutex_);
    const auto over = [this] { return !has_aborted_ || end_ != End::none; };
    ended_.wait_for(lock, session_.config().peer_timeout / 4, over);
  }
  session_.loop().run_sync([this] {
    // The reports end first, so that the launcher does not take the following steps for the end of
    // the job on this rank.
    reports_.reset();
    // From here on only the executor ends operations.
    protocol_.disconnected();
    if (delivery_) delivery_->stop();
  });
  session_.network().abort();
  table_.close(std::make_exception_ptr(this_rank_has_shut_down()));
  executor_->stop();
  executor_->join();
  metrics_.reset();
  observer_.timeline.stop();
  // This comes after all tasks that the executor has posted to the loop.
  session_.loop().run_sync([this] {
    timer_.stop();
    if (channel_) channel_->close();
  });
}

// ---------------------------------------------------------------------------------------------
// Threads that submit.

std::string described(const Request& request) {
  const std::string kind(to_string(request.kind));
  return request.name.empty() ? kind : fmt::format("{} '{}'", kind, request.name);
}

void Coordinator::require_backend(const Request& request) const {
  if (executor_->supports(request)) return;
  table_.check_open();
  throw no_backend_runs(*executor_, request);
}

std::shared_ptr<PendingTensor> Coordinator::accept(Submission&& submission) {
  auto tensor = std::make_shared<PendingTensor>(std::move(submission), executor_);
  tensor->since = Clock::now();
  return tensor;
}

TensorTable::Next Coordinator::add(std::span<const std::shared_ptr<PendingTensor>> tensors) {
  const TensorTable::Next next = table_.add(tensors, executor_->observations());
  observer_.counters.submitted.fetch_add(tensors.size(), std::memory_order_relaxed);
  if (next.announce) session_.loop().post([this] { announce(); });
  if (next.thaw) want_thaw();
  return next;
}

Work Coordinator::submit(Submission&& submission) {
  std::shared_ptr<PendingTensor> tensor = accept(std::move(submission));
  if (add({&tensor, 1}).run) executor_->turn_came();
  return work_of(std::move(tensor));
}

void Coordinator::submit_and_wait(Submission&& submission) {
  std::shared_ptr<PendingTensor> tensor = accept(std::move(submission));
  static_cast<void>(add({&tensor, 1}));  // this thread takes the turn
  executor_->drive(tensor->work, WorkProgress::done, tensor->since);
  work_of(std::move(tensor)).wait();
}

std::vector<Work> Coordinator::submit_all(std::vector<Submission> submissions) {
  std::vector<std::shared_ptr<PendingTensor>> tensors;
  std::vector<Work> works;
  for (Submission& submission : submissions) {
    works.push_back(work_of(tensors.emplace_back(accept(std::move(submission)))));
  }
  if (add(tensors).run) executor_->turn_came();
  return works;
}

void Coordinator::want_thaw() {
  session_.loop().post([this] { protocol_.thaw_wanted(Clock::now()); });
}

void Coordinator::abort(const std::string& reason) noexcept {
  {
    const std::lock_guard lock(end_mutex_);
    has_aborted_ = true;
  }
  session_.loop().post([this, reason] { protocol_.abort(reason, Clock::now()); });
}

void Coordinator::shutdown() {
  const std::lock_guard once(shutdown_mutex_);
  if (std::exchange(shut_down_, true)) return;
  table_.close(std::make_exception_ptr(this_rank_has_shut_down()));
  session_.loop().post([this] {
    announce();  // operations submitted before the shutdown are announced before it
    protocol_.shutdown(Clock::now());
  });
  std::unique_lock lock(end_mutex_);
  const Deadline deadline = Clock::now() + session_.config().shutdown_timeout;
  if (!ended_.wait_until(lock, deadline, [this] { return end_ != End::none; })) {
    throw Error(Errc::timeout, Fault{-1, "", "not every rank has shut down", "shutdown", "",
                                     session_.config().shutdown_timeout});
  }
  lock.unlock();
  executor_->join();  // until then the last collectives may fail
  lock.lock();
  ended_.wait_until(lock, deadline, [this] { return end_ == End::failed || others_know_; });
  if (const std::exception_ptr error = end_error()) std::rethrow_exception(error);
}

// ---------------------------------------------------------------------------------------------
// Loop thread.

void Coordinator::on_message(const std::vector<int>& from, std::span<const std::byte> bytes) {
  if (is_negotiation(bytes)) {
    observer_.counters.control_messages_received += from.size();
    session_.loop().expect_more();
  }
  protocol_.received(from, bytes, Clock::now());
}

void Coordinator::on_lost(int peer, const std::string& cause) {
  protocol_.lost(peer, cause, Clock::now());
}

void Coordinator::on_tick() {
  const Clock::time_point now = Clock::now();
  protocol_.tick(observer_.blocked_times(rank_), now);
  for (const int peer : protocol_.neighbours()) {
    if (channel_) protocol_.host_answered(peer, channel_->host_answered(peer));
  }
  // The schedule is thawed when a turn has waited too long for other ranks, and when this rank has
  // submitted only a part of the next collective and nothing more since. `nothing_runs` notices the
  // latter only where a thread waits for a result. A long backward pass keeps submitting.
  const auto held_back = table_.held_back();
  const std::uint64_t submitted = observer_.counters.submitted.load();
  if (!held_back || held_back != held_back_before_ || submitted != submitted_before_) {
    held_back_before_ = held_back;
    submitted_before_ = submitted;
    held_back_since_ = now;
  }
  const auto waits_since = table_.waits_since();
  if (now - held_back_since_ > kFrozenPatience ||
      (waits_since && now - *waits_since > kFrozenPatience)) {
    held_back_since_ = now;
    protocol_.thaw_wanted(now);
  }
}

/// Handles the end of a trial. The frozen plan holds the buckets, so other sizes take effect by a
/// thaw and the next freeze.
void Coordinator::tune() {
  const bool finished = tuner_->finished();
  const std::optional<BucketSizes> sizes = tuner_->next();
  if (sizes) {
    protocol_.set_bucket_sizes(*sizes);
    protocol_.thaw_wanted(Clock::now());
  }
  if (tuner_->finished() && !finished) log(LogLevel::plan, rank_, tuner_->summary());
}

void Coordinator::announce() {
  if (channel_) session_.loop().expect_more();
  protocol_.submitted(table_.take_unannounced(), Clock::now());
}

void Coordinator::send(const std::vector<int>& to, const Message& message) {
  if (!channel_) return;
  const Bytes bytes = encode(message);
  if (bytes.size() > kMaxControlMessage) {  // the other ranks would wait for it for ever
    return abort(
        fmt::format("a control message of {} bytes is longer than {}; the job has too many "
                    "pending operations or too many ranks for them",
                    bytes.size(), kMaxControlMessage));
  }
  if (is_negotiation(bytes)) observer_.counters.control_messages_sent += to.size();
  channel_->send(to, bytes);
}

/// Ends the job, since this rank cannot carry out what rank 0 has decided.
void Coordinator::refuse(const std::string& problem) {
  protocol_.refused("decided something that this rank cannot carry out: " + problem, Clock::now());
}

std::shared_ptr<PendingTensor> Coordinator::scheduled(const OperationKey& key) {
  auto tensor = table_.find(key);
  if (!tensor) return nullptr;
  table_.mark_scheduled(*tensor);
  observer_.scheduled(*tensor, true, Clock::now());
  return tensor;
}

void Coordinator::run(const FusedBatch& fused) {
  log_decision(rank_, "runs '{}' in process set {}", fmt::join(fused.names, "', '"),
               fused.process_set);
  LocalBatch batch;
  batch.process_set = fused.process_set;
  batch.rows = fused.rows;
  batch.contributors = fused.contributors;
  const bool has_joined = table_.find({0, std::string(kJoinName)}) != nullptr;
  for (std::size_t i = 0; i < fused.names.size(); ++i) {
    auto tensor = scheduled({fused.process_set, fused.names[i]});
    if (!tensor && has_joined && !fused.requests.empty()) {
      tensor = std::make_shared<PendingTensor>();
      tensor->stand_in = true;
      Request& request = tensor->submission.request;
      request = fused.requests[i];
      // The request has the device index of the rank that submitted it.
      if (request.device.kind != Device::Kind::cpu) request.device.index = kOwnDevice;
      tensor->since = tensor->scheduled_at = Clock::now();
    }
    if (!tensor) return refuse(fmt::format("'{}' is not pending", fused.names[i]));
    batch.tensors.push_back(std::move(tensor));
  }
  const ProcessSets::Ranks members = sets_.ranks(fused.process_set);
  if (!members) return refuse(fmt::format("there is no process set {}", fused.process_set));
  if (const std::string problem = problem_with(batch, *members, rank_); !problem.empty()) {
    return refuse(problem);
  }
  batch.kind = batch.tensors.front()->submission.request.kind;
  executor_->run(std::move(batch));
}

void Coordinator::carry_out(const Rejection& rejection) {
  log_decision(rank_, "rejects '{}' in process set {}: {}", rejection.name, rejection.process_set,
               rejection.message);
  if (const auto tensor = table_.find({rejection.process_set, rejection.name})) {
    table_.remove(*tensor);
    tensor_done(*tensor, std::make_exception_ptr(Error(rejection.code, rejection.message)));
    executor_->wake_waiting();
  }
}

void Coordinator::carry_out(const SetAdded& added) {
  if (added.ranks.empty() || added.ranks.back() >= size_) {
    return refuse(fmt::format("process set {} has the ranks {}, and the job has {} ranks", added.id,
                              ranks_text(added.ranks), size_));
  }
  log_decision(rank_, "makes process set {} of {}", added.id, ranks_text(added.ranks));
  sets_.add(added.id, added.ranks);
  LocalBatch batch;
  batch.kind = OpKind::add_process_set;
  batch.process_set = added.id;
  batch.members = added.ranks;
  if (auto tensor = scheduled({0, added.name})) {
    const std::array<std::int64_t, 1> id{added.id};
    tensor->submission.report(id);
    batch.tensors.push_back(std::move(tensor));
  }
  executor_->run(std::move(batch));
}

void Coordinator::carry_out(const SetRemoved& removed) {
  log_decision(rank_, "removes process set {}", removed.id);
  sets_.remove(removed.id);
  LocalBatch batch;
  batch.kind = OpKind::remove_process_set;
  batch.process_set = removed.id;
  if (auto tensor = scheduled({0, removed.name})) batch.tensors.push_back(std::move(tensor));
  executor_->run(std::move(batch));
}

void Coordinator::carry_out(const AllJoined& joined) {
  log_decision(rank_, "ends the join, to which rank {} came last", joined.last);
  if (const auto tensor = table_.find({0, std::string(kJoinName)})) {
    const std::array<std::int64_t, 1> last{joined.last};
    tensor->submission.report(last);
    table_.remove(*tensor);
    tensor_done(*tensor, nullptr);
    executor_->wake_waiting();
  }
}

void Coordinator::carry_out(const Freeze& freeze) {
  const auto members_of = [this](std::int32_t process_set) {
    const ProcessSets::Ranks ranks = sets_.ranks(process_set);
    return ranks ? *ranks : std::vector<int>();
  };
  if (const std::string problem = problem_with(freeze.plan, members_of); !problem.empty()) {
    return refuse(problem);
  }
  log_decision(rank_, "freezes a schedule of {} collectives", freeze.plan.batches.size());
  ++observer_.counters.freezes;
  observer_.timeline.mark("freeze", Clock::now());
  if (tuner_) tuner_->frozen(freeze.plan, freeze.epoch);
  const TensorTable::Next next = table_.freeze(freeze.plan, freeze.epoch);
  if (next.thaw) want_thaw();
  if (next.run) executor_->turn_came();
}

std::uint64_t Coordinator::stop_replay() {
  log_decision(rank_, "thaws the schedule");
  ++observer_.counters.thaws;
  observer_.timeline.mark("thaw", Clock::now());
  return table_.stop();
}

void Coordinator::resume(const std::vector<std::uint64_t>& begun) {
  // The table comes first: it takes the tensors back from the turn, and then `settle` ends the
  // turn.
  table_.resume(begun);
  // This happens on every rank, also where no turn waits: otherwise a later announcement could be
  // taken for one of this turn.
  executor_->settle(begun);
  announce();
}

void Coordinator::stalled(const Stall& stall) {
  ++observer_.counters.stall_warnings;
  log(LogLevel::warn, rank_,
      fmt::format("{} '{}' has waited {} s for {}; submitted by {}", to_string(stall.kind),
                  stall.name, std::chrono::duration_cast<std::chrono::seconds>(stall.age).count(),
                  ranks_text(stall.missing), ranks_text(stall.submitted)));
}

void Coordinator::failed(const Verdict& verdict) {
  const Abort message{verdict.code, describe(verdict)};
  send(protocol_.followers(), message);
  give_up(message, true);
}

Fault Coordinator::describe(const Verdict& verdict) const {
  Fault fault;
  fault.rank = verdict.rank;
  if (verdict.rank >= 0 && verdict.rank < size_) {
    fault.host = session_.topology().hostnames[static_cast<std::size_t>(verdict.rank)];
  }
  fault.cause = verdict.cause;
  Clock::time_point since = began_;
  if (const auto oldest = table_.oldest()) {
    fault.phase = oldest->scheduled ? to_string(oldest->kind) : "negotiation";
    fault.tensor = oldest->name;
    since = oldest->since;
  }
  fault.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since);
  return fault;
}

void Coordinator::aborted(const Abort& message) { give_up(message, false); }

void Coordinator::give_up(const Abort& message, bool is_own_verdict) {
  Fault fault = message.fault;
  if (message.code == Errc::resource) {
    // Rank 0 names one rank. Another that lacks a resource too must not go on in an elastic job.
    const std::lock_guard lock(end_mutex_);
    if (own_lack_) {
      fault.rank = rank_;
      fault.host = session_.topology().hostnames.at(static_cast<std::size_t>(rank_));
      fault.cause = *own_lack_;
    }
  }
  const Error error(message.code, fault);
  log(LogLevel::info, rank_, error.what());
  // torchrun and the launcher hear of it before the program does, because the program may then exit
  // at once.
  write_error_file(session_.config().error_file, error.what());
  if (reports_ && fault.rank != rank_) {
    reports_->ended(fault.rank, has_left(message.code, fault.cause));
  }
  const auto leave = [this, is_own_verdict, thrown = std::make_exception_ptr(error)] {
    // The channel closes before this rank aborts its backends, so that rank 0 sees the end of this
    // rank before it hears from ranks that lose their connections to it.
    if (is_own_verdict && rank_ != 0 && channel_) channel_->close();
    table_.close(thrown);
    session_.network().abort();
    end(End::failed, thrown);
    executor_->stop();
  };
  when_delivered(session_.config().peer_timeout / 4, leave);
}

void Coordinator::shutdown_acknowledged() {
  end(End::shut_down);
  executor_->drain();
  const Config& config = session_.config();
  when_delivered(std::max(config.host_timeout, config.peer_timeout), [this] {
    const std::lock_guard lock(end_mutex_);
    others_know_ = true;
    ended_.notify_all();
  });
}

/// Calls `then` once the ranks below have got what was sent to them, or after `patience`. This
/// process may end only after that: if a link were silent when it ended, the message could be lost,
/// and those ranks would blame this rank. A rank whose host has been silent for longer than the
/// host timeout is not waited for, because it has given this rank up.
void Coordinator::when_delivered(Clock::duration patience, std::function<void()> then) {
  const Config& config = session_.config();
  const Clock::duration silence = std::max(config.host_timeout, config.peer_timeout);
  if (!channel_ || channel_->delivered(silence)) return then();
  const auto look = [this, silence, then = std::move(then), deadline = Clock::now() + patience] {
    if (!channel_->delivered(silence) && Clock::now() < deadline) return;
    delivery_->stop();
    then();
  };
  delivery_.emplace(session_.loop(), kDeliveryInterval, look);
  delivery_->start();
}

void Coordinator::slowest(const Slowest& slowest, bool news) {
  observer_.meter.found_slowest(slowest.rank, slowest.cost);
  if (!news) return;
  log(LogLevel::warn, rank_,
      fmt::format("rank {} on {} is the slowest: the others wait for it for {:.1f} of {:.1f} ms of "
                  "each step",
                  slowest.rank,
                  session_.topology().hostnames.at(static_cast<std::size_t>(slowest.rank)),
                  1000 * slowest.cost, 1000 * slowest.step));
}

/// Returns the error of pending operations and of `shutdown`, or null. The caller holds
/// `end_mutex_`.
std::exception_ptr Coordinator::end_error() const {
  return end_ == End::shut_down ? backend_error_ : error_;
}

/// Comes before the end of the executor, because `stopped` asks for `end_error`.
void Coordinator::end(End how, std::exception_ptr error) {
  if (reports_) reports_->ended();
  const std::lock_guard lock(end_mutex_);
  end_ = how;
  error_ = std::move(error);
  ended_.notify_all();
}

// ---------------------------------------------------------------------------------------------
// The executor thread, and threads that wait for a result.

void Coordinator::turn_taken(const LocalBatch& batch, const SchedulePosition& position,
                             Clock::time_point now) {
  if (tuner_ && tuner_->turn(position.epoch, position.cycle, now)) {
    session_.loop().post([this] { tune(); });
  }
  count_up(observer_.counters.schedule_hits, batch.tensors.size());
  for (const auto& tensor : batch.tensors) observer_.scheduled(*tensor, false, now);
}

/// Releases what the submission refers to, because the user may keep the `Work` for long, and it
/// must not keep the user's memory alive.
void Coordinator::tensor_done(PendingTensor& tensor, std::exception_ptr error) {
  if (tensor.stand_in) return;
  release(tensor.submission);
  auto& counter = error ? observer_.counters.failed : observer_.counters.completed;
  counter.fetch_add(1, std::memory_order_relaxed);
  tensor.work.complete(std::move(error));
}

void Coordinator::batch_done() {
  if (rank_ == 0) session_.loop().post([this] { protocol_.batch_done(Clock::now()); });
}

void Coordinator::backend_failed(const Error& error) {
  Fault fault = error.fault();
  // An error that names no rank is that of this rank's system, so this rank lacks the resource.
  if (error.code() == Errc::resource && fault.rank < 0) fault.rank = rank_;
  {
    const std::lock_guard lock(end_mutex_);
    if (!backend_error_) backend_error_ = std::make_exception_ptr(error);
    if (error.code() == Errc::resource && fault.rank == rank_) own_lack_ = fault.cause;
  }
  session_.loop().post([this, code = error.code(), fault = std::move(fault)] {
    protocol_.collective_failed(code, fault.rank, fault.cause, Clock::now());
  });
}

void Coordinator::waited(Clock::time_point begin, Clock::time_point end) {
  observer_.meter.blocked(begin, end);
}

void Coordinator::nothing_runs() {
  if (table_.held_back()) want_thaw();
}

void Coordinator::stopped() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(end_mutex_);
    error = end_error();
  }
  if (!error) error = std::make_exception_ptr(this_rank_has_shut_down());
  for (const auto& tensor : table_.take_all()) tensor_done(*tensor, error);
}

}  // namespace hvd::detail
