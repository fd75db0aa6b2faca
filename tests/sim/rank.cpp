#include "rank.hpp"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "engine/decision_checks.hpp"
#include "policy/replay.hpp"
#include "world.hpp"

namespace hvd::sim {
namespace {

using namespace detail;  // NOLINT: a test

constexpr Nanos kTick = 100 * kMilli;
constexpr Nanos kFrozenPatience = kSecond;
constexpr Nanos kDeliveryInterval = kMilli;

Record& record_of(const PendingTensor& tensor) {
  return *static_cast<Record*>(const_cast<void*>(tensor.submission.input));
}

std::exception_ptr error_of(Errc code) { return std::make_exception_ptr(Error(code, "")); }

Nanos nanos(Clock::duration duration) { return std::chrono::nanoseconds(duration).count(); }

}  // namespace

SimRank::SimRank(World& world, int rank, const Protocol::Settings& settings,
                 const RankProgram& program)
    : world_(world),
      rank_(rank),
      peer_timeout_(nanos(settings.detector.peer_timeout)),
      longest_silence_(std::max(nanos(settings.detector.host_timeout), peer_timeout_)),
      table_(rank, settings.size),
      protocol_(settings, *this, time_point_at(0)),
      executor_(rank, world.events, world.delays, world.random, world.fences, world.data,
                callbacks()),
      user_(world, *this, program) {}

Clock::time_point SimRank::now() const { return time_point_at(world_.events.now()); }

void SimRank::start() {
  world_.events.at(kTick + world_.random.between(0, kTick), rank_, [this] { tick(); });
  user_.start();
}

void SimRank::post(std::function<void()> task) {
  last_post_ = std::max(last_post_, world_.events.now() + world_.delays.local(rank_));
  world_.events.at(last_post_, rank_, std::move(task));
}

ExecutorModel::Callbacks SimRank::callbacks() {
  ExecutorModel::Callbacks it;
  it.take_turn = [this] { return take_turn(); };
  it.turn_ready = [this] { return table_.turn_ready(); };
  it.turn_committed = [this] {
    turn_since_.reset();
    table_.commit_turn();
  };
  it.turn_over = [this] {
    turn_since_.reset();
    table_.end_turn();
  };
  it.tensor_done = [this](PendingTensor& tensor) { tensor_done(tensor, std::nullopt); };
  it.batch_done = [this] {
    if (rank_ == 0) post([this] { protocol_.batch_done(now()); });
  };
  it.failed = [this](Blame blame) {
    world_.trace.say(world_.events.now(), rank_, "a collective failed, blaming {}", blame.culprit);
    post([this, blame] { protocol_.collective_failed(blame.code, blame.culprit, "reset", now()); });
  };
  it.stopped = [this] { fail_pending(); };
  return it;
}

// ---------------------------------------------------------------------------------------------
// Threads that submit.

bool SimRank::submit(std::vector<Request> requests, int slot, std::vector<Record*>& records) {
  std::vector<std::shared_ptr<PendingTensor>> tensors;
  std::vector<Record*> made;
  bool duplicate = false;
  for (Request& request : requests) {
    if (!world_.oracle.knows(request.process_set)) return false;
    duplicate = duplicate || (!closed_ && world_.oracle.pending(rank_, key_of(request)));
    Record& record = *made.emplace_back(&world_.oracle.submitted(rank_, request));
    auto& tensor = tensors.emplace_back(std::make_shared<PendingTensor>());
    tensor->submission.request = std::move(request);
    tensor->submission.input = &record;
    tensor->since = now();
    tensor->submission.report = [this, &record, slot](std::span<const std::int64_t> values) {
      record.reported.assign(values.begin(), values.end());
      if (slot >= 0) user_.set_made(slot, static_cast<std::int32_t>(values.front()));
    };
    world_.trace.say(world_.events.now(), rank_, "submits {}", to_string(*record.logical));
  }
  TensorTable::Next next;
  try {
    next = table_.add(tensors, user_.observations());
  } catch (const Error& error) {
    for (auto it = made.rbegin(); it != made.rend(); ++it) world_.oracle.refused(**it);
    const bool expected = error.code() == Errc::duplicate_name ? duplicate : closed_;
    if (!expected) throw Violation("accepts operations", error.what());
    return error.code() == Errc::duplicate_name;
  }
  if (duplicate) throw Violation("duplicates are refused", to_string(*made.front()->logical));
  records.insert(records.end(), made.begin(), made.end());
  submitted_ += tensors.size();
  follow_up(next);
  return true;
}

void SimRank::follow_up(const TensorTable::Next& next) {
  if (next.announce) post([this] { announce(); });
  if (next.thaw) want_thaw();
  if (next.run) executor_.wake();
}

void SimRank::want_thaw() {
  post([this] { protocol_.thaw_wanted(now()); });
}

void SimRank::abort() {
  post([this] { protocol_.abort("the user says so", now()); });
}

void SimRank::looked() {
  executor_.wake();
  if (executor_.idle() && executor_.running() && table_.held_back()) want_thaw();
}

void SimRank::program_over(Nanos linger) {
  world_.events.at(world_.events.now() + linger, rank_, [this] {
    if (end_ != End::none) return leave();
    world_.trace.say(world_.events.now(), rank_, "shuts down");
    closed_ = true;
    table_.close(error_of(Errc::shut_down));
    post([this] {
      announce();
      world_.oracle.shutdown_requested(rank_);
      protocol_.shutdown(now());
    });
  });
}

/// Does the work of `Coordinator::disconnect` for a user who has seen the end.
void SimRank::leave() {
  if (std::exchange(left_, true)) return;
  world_.events.at(world_.events.now() + world_.random.spread(kMicro, 100 * kMilli), rank_,
                   [this] { world_.network.close(rank_); });
}

// ---------------------------------------------------------------------------------------------
// Loop thread.

void SimRank::message(const std::vector<int>& from, std::span<const std::byte> bytes) {
  if (!left_) protocol_.received(from, bytes, now());
}

void SimRank::lost(int peer) {
  if (!left_) protocol_.lost(peer, "the stream ended", now());
}

void SimRank::tick() {
  protocol_.tick({}, now());
  for (const int peer : protocol_.neighbours()) {
    protocol_.host_answered(peer, time_point_at(world_.network.host_answered(rank_, peer)));
  }
  watch_replay();
  if (end_ == End::none) world_.events.at(world_.events.now() + kTick, rank_, [this] { tick(); });
}

/// Does the work of the second half of `Coordinator::on_tick`.
void SimRank::watch_replay() {
  const Nanos time = world_.events.now();
  const auto held_back = table_.held_back();
  if (!held_back || held_back != held_back_before_ || submitted_ != submitted_before_) {
    held_back_before_ = held_back;
    submitted_before_ = submitted_;
    held_back_since_ = time;
  }
  if (time - held_back_since_ > kFrozenPatience ||
      (turn_since_ && time - *turn_since_ > kFrozenPatience)) {
    held_back_since_ = time;
    protocol_.thaw_wanted(now());
  }
}

void SimRank::announce() { protocol_.submitted(table_.take_unannounced(), now()); }

void SimRank::send(const std::vector<int>& to, const Message& message) {
  const Bytes bytes = encode(message);
  if (is_negotiation(bytes)) {
    world_.control_messages += to.size();
    if (world_.script.steady && replaying_ && !world_.oracle.anybody_left()) {
      throw Violation("a frozen schedule costs no message",
                      fmt::format("rank {} sends one of type {}", rank_, message.index()));
    }
  }
  if (!std::holds_alternative<Heartbeat>(message)) {
    world_.trace.say(world_.events.now(), rank_, "sends type {} to {}", message.index(),
                     fmt::join(to, ","));
  }
  world_.network.send(rank_, to, bytes);
}

std::shared_ptr<PendingTensor> SimRank::scheduled(const OperationKey& key) {
  auto tensor = table_.find(key);
  if (tensor) table_.mark_scheduled(*tensor);
  return tensor;
}

void SimRank::run(const FusedBatch& fused) {
  world_.trace.say(world_.events.now(), rank_, "runs [{}] of set {}", fmt::join(fused.names, ","),
                   fused.process_set);
  LocalBatch batch;
  batch.process_set = fused.process_set;
  batch.rows = fused.rows;
  batch.contributors = fused.contributors;
  for (std::size_t i = 0; i < fused.names.size(); ++i) {
    auto tensor = scheduled({fused.process_set, fused.names[i]});
    if (!tensor && !fused.requests.empty()) {
      tensor = std::make_shared<PendingTensor>();
      tensor->stand_in = true;
      tensor->submission.request = fused.requests[i];
    }
    if (!tensor) {
      throw Violation("what is scheduled is pending",
                      fmt::format("rank {}: '{}'", rank_, fused.names[i]));
    }
    batch.tensors.push_back(std::move(tensor));
  }
  require(problem_with(batch, world_.oracle.members(fused.process_set), rank_));
  batch.kind = batch.tensors.front()->submission.request.kind;
  executor_.run(std::move(batch));
}

/// No rank refuses what rank 0 decides.
void SimRank::require(const std::string& problem) const {
  if (!problem.empty()) throw Violation("what is decided can be done", problem);
}

void SimRank::carry_out(const Rejection& rejection) {
  const auto tensor = table_.find({rejection.process_set, rejection.name});
  if (!tensor) return;
  if (tensor->scheduled) {
    throw Violation("what runs is not rejected", to_string(*record_of(*tensor).logical));
  }
  world_.trace.say(world_.events.now(), rank_, "rejects '{}': {}", rejection.name,
                   rejection.message);
  tensor_done(*tensor, rejection.code);
}

void SimRank::carry_out(const SetAdded& added) {
  world_.oracle.set_added(added.id, added.ranks);
  LocalBatch batch;
  batch.kind = OpKind::add_process_set;
  batch.process_set = added.id;
  batch.members = added.ranks;
  if (auto tensor = scheduled({0, added.name})) {
    const std::array<std::int64_t, 1> id{added.id};
    tensor->submission.report(id);
    batch.tensors.push_back(std::move(tensor));
  }
  executor_.run(std::move(batch));
}

void SimRank::carry_out(const SetRemoved& removed) {
  world_.oracle.set_removed(removed.id);
  LocalBatch batch;
  batch.kind = OpKind::remove_process_set;
  batch.process_set = removed.id;
  if (auto tensor = scheduled({0, removed.name})) batch.tensors.push_back(std::move(tensor));
  executor_.run(std::move(batch));
}

void SimRank::carry_out(const AllJoined& joined) {
  if (const auto tensor = table_.find({0, std::string(kJoinName)})) {
    const std::array<std::int64_t, 1> last{joined.last};
    tensor->submission.report(last);
    tensor_done(*tensor, std::nullopt);
  }
}

void SimRank::carry_out(const Freeze& freeze) {
  world_.trace.say(world_.events.now(), rank_, "freezes {} batches, epoch {}",
                   freeze.plan.batches.size(), freeze.epoch);
  require(
      problem_with(freeze.plan, [this](std::int32_t set) { return world_.oracle.members(set); }));
  if (rank_ == 0) ++world_.freezes;
  if (freeze.epoch <= epoch_) throw Violation("epochs grow", fmt::format("{}", freeze.epoch));
  epoch_ = freeze.epoch;
  replaying_ = true;
  follow_up(table_.freeze(freeze.plan, freeze.epoch));
}

std::uint64_t SimRank::stop_replay() {
  if (rank_ == 0) ++world_.thaws;
  replaying_ = false;
  const std::uint64_t sequence = table_.stop();
  world_.trace.say(world_.events.now(), rank_, "stops at sequence number {:#x}", sequence);
  return sequence;
}

void SimRank::resume(const std::vector<std::uint64_t>& begun) {
  table_.resume(begun);
  executor_.settle(begun);
  world_.trace.say(world_.events.now(), rank_, "resumes");
  announce();
}

void SimRank::stalled(const Stall& stall) {
  world_.trace.say(world_.events.now(), rank_, "'{}' is stalled, missing {}", stall.name,
                   fmt::join(stall.missing, ","));
}

void SimRank::failed(const Verdict& verdict) {
  Abort message;
  message.code = verdict.code;
  message.fault.rank = verdict.rank;
  message.fault.cause = verdict.cause;
  send(protocol_.followers(), message);
  give_up(message, true);
}

void SimRank::aborted(const Abort& message) { give_up(message, false); }

void SimRank::give_up(const Abort& message, bool is_own_verdict) {
  world_.trace.say(world_.events.now(), rank_, "gives up: {} of rank {}, {}",
                   hvd::to_string(message.code), message.fault.rank, message.fault.cause);
  code_ = message.code;
  culprit_ = message.fault.rank;
  cause_ = message.fault.cause;
  when_delivered(peer_timeout_ / 4, [this, is_own_verdict] {
    world_.trace.say(world_.events.now(), rank_, "fails");
    if (is_own_verdict && rank_ != 0) world_.network.close(rank_);
    closed_ = true;
    table_.close(error_of(code_));
    world_.fences.gone(rank_);
    world_.data.gone(rank_);
    end_ = End::failed;
    executor_.stop();
    if (user_.finished()) leave();
  });
}

void SimRank::shutdown_acknowledged() {
  world_.trace.say(world_.events.now(), rank_, "shutdown acknowledged");
  if (!closed_)
    throw Violation("an acknowledged shutdown was requested", fmt::format("rank {}", rank_));
  end_ = End::shut_down;
  executor_.drain();
  when_delivered(longest_silence_, [this] { leave(); });
}

/// Does the work of `Coordinator::when_delivered`. Half of the time the ranks below are taken to
/// share this rank's host, where everything is delivered as soon as it is sent.
void SimRank::when_delivered(Nanos patience, std::function<void()> then) {
  look_for_delivery(world_.random.chance(50), world_.events.now() + patience, std::move(then));
}

void SimRank::look_for_delivery(bool one_host, Nanos deadline, std::function<void()> then) {
  const Nanos time = world_.events.now();
  if (time >= deadline || world_.network.delivered(rank_, longest_silence_, one_host)) {
    return then();
  }
  world_.events.at(time + kDeliveryInterval, rank_,
                   [this, one_host, deadline, then = std::move(then)] {
                     look_for_delivery(one_host, deadline, then);
                   });
}

// ---------------------------------------------------------------------------------------------
// Executor thread.

std::optional<LocalBatch> SimRank::take_turn() {
  LocalBatch batch;
  const std::optional<SchedulePosition> position = table_.take_turn(batch, now());
  if (!position) return std::nullopt;
  if (!replaying_ || position->epoch != epoch_) {
    throw Violation("nothing begins out of its epoch",
                    fmt::format("rank {}: sequence number {:#x}", rank_, batch.sequence));
  }
  world_.trace.say(world_.events.now(), rank_, "takes turn {:#x}, {} tensors", batch.sequence,
                   batch.tensors.size());
  turn_since_ = world_.events.now();
  return batch;
}

void SimRank::tensor_done(PendingTensor& tensor, std::optional<Errc> error) {
  if (tensor.stand_in) return;
  table_.remove(tensor);
  Record& record = record_of(tensor);
  if (tensor.work.done()) throw Violation("resolved once", to_string(*record.logical));
  tensor.work.complete(error ? error_of(*error) : nullptr);
  world_.oracle.resolved(record, error);
  world_.trace.say(world_.events.now(), rank_, "{} {}", error ? "fails" : "completes",
                   to_string(*record.logical));
  user_.resolved(record);
}

void SimRank::fail_pending() {
  const Errc code = end_ == End::failed ? code_ : Errc::shut_down;
  for (const auto& tensor : table_.take_all()) {
    tensor_done(*tensor, code);
  }
}

}  // namespace hvd::sim
