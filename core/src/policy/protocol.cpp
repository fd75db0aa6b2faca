#include "policy/protocol.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/text.hpp>

#include "policy/replay.hpp"

namespace hvd::detail {
namespace {

// One batch runs while the next is agreed on. What becomes ready meanwhile is fused.
constexpr std::size_t kBatchesInFlight = 2;

void expect(bool condition, std::string_view what) {
  if (!condition) throw Error(Errc::protocol, fmt::format("unexpected message: {}", what));
}

std::vector<int> joined(int parent, std::vector<int> children) {
  if (parent >= 0) children.push_back(parent);
  return children;
}

bool has_group(const Agreement& agreement) {
  const auto* tensors = std::get_if<FusedTensors>(&agreement);
  return tensors && std::any_of(tensors->begin(), tensors->end(), [](const ReadyTensor& tensor) {
           return !tensor.request.group.empty();
         });
}

/// Tells whether the members' batches differ in their rows.
bool differs_by_rank(const FusedTensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const ReadyTensor& tensor) {
    return std::any_of(tensor.rows.begin(), tensor.rows.end(),
                       [](const auto& of_member) { return of_member.size() != 1; });
  });
}

}  // namespace

Protocol::Protocol(const Settings& settings, Actions& actions, Clock::time_point now)
    : settings_(settings),
      routes_(settings.size, settings.fanout),
      parent_(routes_.parent(settings.rank)),
      children_(routes_.children(settings.rank)),
      neighbours_(joined(parent_, children_)),
      actions_(actions),
      detector_(settings.detector, now),
      below_(settings.detector, now),
      negotiator_(leads() ? settings.size : 0, settings.fusion_threshold),
      learner_({settings.freeze_after, usual_sizes(settings.fusion_threshold)}),
      reported_(leads() ? static_cast<std::size_t>(settings.size) : 0),
      begun_(reported_.size()),
      stalls_reported_(now) {
  if (!leads()) detector_.watch(parent_, now);
  for (const int child : children_) (leads() ? detector_ : below_).watch(child, now);
}

// ---------------------------------------------------------------------------------------------
// Events on this rank.

void Protocol::submitted(std::vector<Announcement> operations, Clock::time_point now) {
  if (over_ || refused_ || operations.empty()) return;
  Submitted message{epoch_, std::move(operations)};
  if (leads()) {
    handle({settings_.rank}, message, now);
  } else {
    actions_.send({0}, message);
  }
}

void Protocol::batch_done(Clock::time_point now) {
  if (!leads()) return;
  --in_flight_;
  if (!over_) pump(now);
}

void Protocol::thaw_wanted(Clock::time_point now) {
  if (over_ || mode_ != Mode::frozen) return;
  if (leads()) {
    begin_thaw(now);
  } else {
    actions_.send({0}, ThawRequest{epoch_});
  }
}

void Protocol::collective_failed(Errc code, int culprit, const std::string& cause,
                                 Clock::time_point now) {
  suspect(code, culprit, cause, now);
}

void Protocol::refused(const std::string& cause, Clock::time_point now) {
  refused_ = true;
  suspect(Errc::protocol, 0, cause, now);
}

void Protocol::abort(const std::string& reason, Clock::time_point now) {
  suspect(Errc::aborted, settings_.rank, reason, now);
}

void Protocol::shutdown(Clock::time_point now) {
  if (over_) return;
  leaving_ = true;
  if (leads()) {
    handle({settings_.rank}, ShutdownRequested{epoch_}, now);
  } else {
    actions_.send({0}, ShutdownRequested{epoch_});
  }
}

void Protocol::tick(const BlockedTimes& own, Clock::time_point now) {
  if (over_) return;
  BlockedTimes times = own;
  for (const auto& [child, of_child] : times_) times.add(of_child);
  if (leads()) {
    const Slowest slowest = slowest_of(times, settings_.size);
    found(slowest, news_.is_news(slowest, now));
    watch_stalls(now);
  } else {
    actions_.send({parent_}, Heartbeat{times, {}});
  }
  if (!children_.empty()) actions_.send(children_, Heartbeat{{}, slowest_});
  judge_below(now);
  judge(now);
}

// ---------------------------------------------------------------------------------------------
// Events from other ranks.

void Protocol::received(const std::vector<int>& from, std::span<const std::byte> bytes,
                        Clock::time_point now) {
  if (over_) return;
  const int neighbour = routes_.towards(settings_.rank, from.front());
  (relays(neighbour) ? below_ : detector_).heard(neighbour, now);
  try {
    Message message = decode_message(bytes);
    std::visit([&](auto& it) { handle(from, it, now); }, message);
  } catch (const Error& error) {
    const Fault& fault = error.fault();
    accuse(fault.rank >= 0 ? fault.rank : from.front(), fault.cause, now);
  }
}

void Protocol::lost(int peer, const std::string& cause, Clock::time_point now) {
  if (!over_) accuse(peer, cause, now);
}

void Protocol::host_answered(int neighbour, Clock::time_point at) {
  (relays(neighbour) ? below_ : detector_).host_answered(neighbour, at);
}

void Protocol::handle(const Ranks& from, Submitted& message, Clock::time_point now) {
  expect(leads(), "submitted");
  // The sender did not know of the last freeze or thaw yet. It announces again what is pending.
  if (message.epoch != epoch_) {
    expect(message.epoch < epoch_, "submitted in an epoch to come");
    return;
  }
  expect(mode_ == Mode::negotiating, "submitted while the schedule is frozen");
  negotiator_.submitted(from, std::move(message.operations), now);
  pump(now);
}

void Protocol::handle(const Ranks& from, const ShutdownRequested& message, Clock::time_point now) {
  expect(leads() && message.epoch <= epoch_, "shutdown requested");
  // Operations that the sender submitted earlier must run first. After the thaw it announces them
  // again and then repeats its request.
  if (mode_ == Mode::frozen) begin_thaw(now);
  if (mode_ != Mode::negotiating || message.epoch != epoch_) return;
  for (const int rank : from) negotiator_.departed(rank);
  pump(now);
}

void Protocol::handle(const Ranks&, const Suspicion& message, Clock::time_point now) {
  expect(leads(), "suspicion");
  suspect(message.code, message.rank, message.cause, now);
}

void Protocol::handle(const Ranks& from, Schedule& message, Clock::time_point) {
  expect(from.front() == 0 && !leads(), "schedule");
  for (const Decision& decision : message.decisions) {
    if (refused_) return;
    expect(mode_ == Mode::negotiating, "schedule while the schedule is frozen");
    carry_out(decision);
  }
}

void Protocol::handle(const Ranks& from, const ShutdownAcknowledged&, Clock::time_point) {
  expect(from.front() == 0, "shutdown acknowledged");
  over_ = true;
  actions_.shutdown_acknowledged();
}

void Protocol::handle(const Ranks& from, const Abort& message, Clock::time_point) {
  expect(!leads() && (from.front() == 0 || from.front() == parent_), "message");
  // Rank 0's verdict has been passed on already. That of a relay is for all ranks below it.
  if (from.front() != 0 && !children_.empty()) actions_.send(children_, message);
  over_ = true;
  actions_.aborted(message);
}

void Protocol::handle(const Ranks& from, const Heartbeat& message, Clock::time_point) {
  const auto& [times, slowest] = message;
  expect(std::max({times.least.rank, times.second.rank, slowest.rank}) < settings_.size,
         "heartbeat that names a rank outside of the job");
  if (from.front() == parent_) {
    found(message.slowest, false);
  } else {
    times_[from.front()] = message.times;
  }
}

void Protocol::handle(const Ranks&, const ThawRequest& message, Clock::time_point now) {
  expect(leads(), "thaw request");
  if (message.epoch == epoch_ && mode_ == Mode::frozen) begin_thaw(now);
}

void Protocol::handle(const Ranks& from, const Stopped& message, Clock::time_point now) {
  expect(leads() && mode_ == Mode::thawing && message.epoch == epoch_, "stopped");
  for (const int rank : from) stopped(rank, message.sequence, now);
}

void Protocol::handle(const Ranks& from, const Thaw& message, Clock::time_point now) {
  expect(from.front() == 0 && !leads(), "thaw");
  stop(message.epoch, now);
}

void Protocol::handle(const Ranks& from, const Resume& message, Clock::time_point now) {
  expect(from.front() == 0 && !leads(), "resume");
  resume(message, now);
}

void Protocol::handle(const Ranks& from, const PeerLost& message, Clock::time_point now) {
  if (message.rank == settings_.rank) {
    // A child gives this rank up and leaves. If this rank stood still, the child is right and this
    // rank is the culprit. Otherwise the child is cut off, which the end of its stream will show.
    if (const auto pause = detector_.stood_still(now)) {
      accuse(settings_.rank,
             fmt::format("stood still for {:.1f} s", std::chrono::duration<double>(*pause).count()),
             now);
    }
    return;
  }
  const int teller = from.front();
  expect(leads() && message.rank >= teller && message.rank < routes_.end_of(teller), "lost");
  accuse(message.rank, message.cause, now);
}

// ---------------------------------------------------------------------------------------------
// Rank 0 decides.

void Protocol::pump(Clock::time_point now) {
  while (mode_ == Mode::negotiating && !over_) {
    const std::size_t free = kBatchesInFlight - std::min(kBatchesInFlight, in_flight_);
    const std::vector<Agreement> agreements = negotiator_.take(free);
    if (agreements.empty()) break;
    hand_out(agreements);
  }
  // While a rank is suspected, the job must end with a verdict and not as if all went well.
  if (!over_ && mode_ == Mode::negotiating && negotiator_.finished() && !detector_.suspects()) {
    actions_.send(followers(), ShutdownAcknowledged{});
    handle({settings_.rank}, ShutdownAcknowledged{}, now);
  }
}

FusedBatch Protocol::batch_for(int rank, const FusedTensors& tensors) const {
  const Request& first = tensors.front().request;
  const std::vector<int>& members = negotiator_.members(first.process_set);
  const auto member = static_cast<std::size_t>(
      std::lower_bound(members.begin(), members.end(), rank) - members.begin());
  FusedBatch batch;
  batch.process_set = first.process_set;
  batch.contributors = tensors.front().contributors;
  // A rank that has joined lacks some of these operations, so it needs the requests.
  const bool left_out = std::any_of(tensors.begin(), tensors.end(), [](const ReadyTensor& tensor) {
    return tensor.segments.empty();
  });
  for (const ReadyTensor& tensor : tensors) {
    batch.names.push_back(tensor.request.name);
    if (left_out) batch.requests.push_back(tensor.request);
    if (tensor.rows.empty()) continue;
    std::vector<std::int64_t>& rows = batch.rows.emplace_back();
    for (const auto& of_member : tensor.rows) {
      rows.push_back(of_member.size() == 1 ? of_member.front() : of_member.at(member));
    }
  }
  return batch;
}

void Protocol::hand_out(const std::vector<Agreement>& agreements) {
  // By rank, the indices of the decisions that concern it. Ranks with the same ones get one
  // message.
  std::vector<std::vector<std::size_t>> concerned(static_cast<std::size_t>(settings_.size));
  std::vector<Decision> decisions;
  const auto decide = [&](Decision decision, const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      concerned[static_cast<std::size_t>(rank)].push_back(decisions.size());
    }
    decisions.push_back(std::move(decision));
  };
  const std::vector<int>& everybody = negotiator_.members(0);
  const bool only_batches = std::all_of(
      agreements.begin(), agreements.end(),
      [](const Agreement& agreement) { return std::holds_alternative<FusedTensors>(agreement); });
  for (const Agreement& agreement : agreements) {
    if (const auto* decision = std::get_if<Decision>(&agreement)) {
      learner_.reset();
      decide(*decision, everybody);
      continue;
    }
    if (const auto* partial = std::get_if<PartialRejection>(&agreement)) {
      learner_.reset();
      decide(partial->rejection, partial->ranks);
      continue;
    }
    const auto& tensors = std::get<FusedTensors>(agreement);
    const std::vector<int>& members = negotiator_.members(tensors.front().request.process_set);
    if (differs_by_rank(tensors)) {
      for (const int rank : members) decide(batch_for(rank, tensors), {rank});
    } else {
      decide(batch_for(members.front(), tensors), members);
    }
    learner_.observe(tensors);
    // A plan must not divide a group between its end and the operations that follow.
    const bool divides =
        negotiator_.group_is_ready() ||
        std::any_of(&agreement + 1, agreements.data() + agreements.size(), has_group);
    if (!only_batches || divides) continue;
    if (const std::optional<Freeze> freeze = try_to_freeze()) {
      decide(*freeze, everybody);
      break;  // every rank still has the operations of the remaining batches pending
    }
  }
  std::map<std::vector<std::size_t>, std::vector<int>> recipients;
  for (int rank = 1; rank < settings_.size; ++rank) {
    recipients[concerned[static_cast<std::size_t>(rank)]].push_back(rank);
  }
  for (const auto& [indices, ranks] : recipients) {
    if (indices.empty()) continue;
    Schedule schedule;
    for (const std::size_t index : indices) schedule.decisions.push_back(decisions[index]);
    actions_.send(ranks, schedule);
  }
  for (const std::size_t index : concerned.front()) carry_out(decisions[index]);
}

std::optional<Freeze> Protocol::try_to_freeze() {
  // Sequence numbers must not repeat. A job that has used them up goes on without a schedule.
  if (!negotiator_.everybody_works() || epoch_ + 1 >= kMostEpochs) return std::nullopt;
  auto cycle = learner_.learned();
  if (!cycle) return std::nullopt;
  Freeze freeze{epoch_ + 1, {}};
  std::set<OperationKey> names;
  for (const FusedTensors& tensors : *cycle) {
    PlannedBatch& batch = freeze.plan.batches.emplace_back();
    batch.process_set = tensors.front().request.process_set;
    if (batch.process_set != 0) batch.members = negotiator_.members(batch.process_set);
    for (const ReadyTensor& tensor : tensors) {
      names.insert(key_of(tensor.request));
      batch.requests.push_back(tensor.request);
      if (tensor.rows.empty()) continue;
      std::vector<std::int64_t>& rows = batch.rows.emplace_back();
      for (const auto& of_member : tensor.rows) rows.push_back(of_member.front());
    }
  }
  // An operation that the plan does not hold is on its way and would end the plan at once.
  for (const OperationKey& key : negotiator_.pending()) {
    if (names.count(key) == 0) return std::nullopt;
  }
  learner_.frozen(std::move(*cycle));
  negotiator_.forget_pending();
  plan_ = freeze.plan;
  return freeze;
}

void Protocol::begin_thaw(Clock::time_point now) {
  mode_ = Mode::thawing;
  std::fill(reported_.begin(), reported_.end(), false);
  reports_ = 0;
  actions_.send(followers(), Thaw{epoch_});
  stop(epoch_, now);
}

void Protocol::stopped(int rank, std::uint64_t sequence, Clock::time_point now) {
  const auto index = static_cast<std::size_t>(rank);
  if (reported_[index]) {
    Fault fault;
    fault.rank = rank;
    fault.cause = fmt::format("rank {} stopped twice", rank);
    throw Error(Errc::protocol, fault);
  }
  reported_[index] = true;
  begun_[index] = sequence;
  if (++reports_ == reported_.size()) finish_thaw(now);
}

void Protocol::finish_thaw(Clock::time_point now) {
  // The learner has to know how far the ranks got: a batch that all members have begun is finished.
  const std::uint64_t furthest = *std::max_element(begun_.begin(), begun_.end());
  std::uint64_t cycles = 0;
  std::vector<std::size_t> finished;
  if (furthest != 0) {
    const std::size_t batches = plan_.batches.size();
    const SchedulePosition last = position_of(furthest, batches);
    cycles = last.cycle;
    for (std::size_t batch = 0; batch < batches; ++batch) {
      const SequenceNumber sequence = sequence_of({epoch_, last.cycle, batch}, batches);
      bool by_all = true;
      for (int rank = 0; rank < settings_.size; ++rank) {
        const bool member = member_index(rank, plan_.batches[batch]) >= 0;
        if (member && begun_[static_cast<std::size_t>(rank)] < sequence) by_all = false;
      }
      if (by_all) finished.push_back(batch);
    }
    if (finished.size() == batches) {
      ++cycles;
      finished.clear();
    }
  }
  learner_.thawed(cycles, finished);
  recall_groups();
  const Resume message{epoch_ + 1, begun_};
  actions_.send(followers(), message);
  resume(message, now);
}

/// The thaw may have divided a group. Its members that have run are not announced again.
void Protocol::recall_groups() {
  std::map<OperationKey, std::map<std::string, int>> runs;  // by group, how often each member ran
  for (std::size_t batch = 0; batch < plan_.batches.size(); ++batch) {
    const PlannedBatch& planned = plan_.batches[batch];
    std::uint64_t reached = std::numeric_limits<std::uint64_t>::max();  // by all members
    for (int rank = 0; rank < settings_.size; ++rank) {
      if (member_index(rank, planned) < 0) continue;
      reached = std::min(reached, begun_[static_cast<std::size_t>(rank)]);
    }
    const bool ran = reached != 0 && batch <= position_of(reached, plan_.batches.size()).batch;
    for (const Request& request : planned.requests) {
      if (request.group.empty()) continue;
      runs[{request.process_set, request.group}][request.name] += ran ? 1 : 0;
    }
  }
  for (const auto& [group, members] : runs) {
    const int whole = std::min_element(members.begin(), members.end(), [](auto& a, auto& b) {
                        return a.second < b.second;
                      })->second;
    for (const auto& [name, times] : members) {
      if (times > whole) negotiator_.ran(group);
    }
  }
}

void Protocol::watch_stalls(Clock::time_point now) {
  // To describe stalls takes long where many ranks wait in many operations. So while there are
  // some, they are not described at every tick.
  const Clock::duration period = settings_.stall_warn;
  if (period.count() > 0 && now - stalls_reported_ >= period / 10) {
    const std::vector<Stall> stalls = negotiator_.stalls(now, period);
    for (const Stall& stall : stalls) {
      // Each is reported once for every whole period that it has lasted.
      const Clock::duration before = stall.age - (now - stalls_reported_);
      if (stall.age / period != before / period) actions_.stalled(stall);
    }
    if (!stalls.empty()) stalls_reported_ = now;
  }
  if (settings_.stall_abort.count() > 0) {
    const std::vector<Stall> stalls = negotiator_.stalls(now, settings_.stall_abort);
    if (!stalls.empty()) {
      const Stall& stall = stalls.front();
      suspect(Errc::timeout, stall.missing.empty() ? -1 : stall.missing.front(),
              fmt::format("did not submit {} '{}', for which {} waited {} s", to_string(stall.kind),
                          stall.name, ranks_text(stall.submitted),
                          std::chrono::duration_cast<std::chrono::seconds>(stall.age).count()),
              now);
    }
  }
}

void Protocol::found(const Slowest& slowest, bool news) {
  if (slowest == slowest_ && !news) return;
  slowest_ = slowest;
  actions_.slowest(slowest, news);
}

void Protocol::set_bucket_sizes(const BucketSizes& sizes) {
  negotiator_.set_fusion_threshold(sizes.threshold);
  learner_.set_bucket_sizes(sizes);
}

// ---------------------------------------------------------------------------------------------
// Every rank carries out what rank 0 decided.

void Protocol::carry_out(const Decision& decision) {
  // The executor runs these and reports their end.
  const bool runs = std::holds_alternative<FusedBatch>(decision) ||
                    std::holds_alternative<SetAdded>(decision) ||
                    std::holds_alternative<SetRemoved>(decision);
  if (leads() && runs) ++in_flight_;
  if (const auto* batch = std::get_if<FusedBatch>(&decision)) {
    actions_.run(*batch);
    return;
  }
  if (const auto* freeze = std::get_if<Freeze>(&decision)) {
    expect(mode_ == Mode::negotiating && freeze->epoch == epoch_ + 1, "freeze");
    epoch_ = freeze->epoch;
    mode_ = Mode::frozen;
    actions_.carry_out(*freeze);
    return;
  }
  std::visit(
      [this](const auto& it) {
        using It = std::decay_t<decltype(it)>;
        if constexpr (!std::is_same_v<It, FusedBatch> && !std::is_same_v<It, Freeze>) {
          actions_.carry_out(it);
        }
      },
      decision);
}

void Protocol::stop(std::uint32_t epoch, Clock::time_point now) {
  expect(epoch == epoch_ && mode_ != Mode::negotiating, "thaw");
  mode_ = Mode::thawing;
  const std::uint64_t sequence = actions_.stop_replay();
  if (leads()) {
    stopped(settings_.rank, sequence, now);
  } else {
    actions_.send({0}, Stopped{epoch, sequence});
  }
}

void Protocol::resume(const Resume& message, Clock::time_point now) {
  expect(mode_ == Mode::thawing && message.epoch == epoch_ + 1 &&
             std::ssize(message.begun) == settings_.size,
         "resume");
  epoch_ = message.epoch;
  mode_ = Mode::negotiating;
  actions_.resume(message.begun);
  if (leaving_) shutdown(now);
  if (leads()) pump(now);
}

void Protocol::suspect(Errc code, int rank, const std::string& cause, Clock::time_point now) {
  if (over_) return;
  if (!leads()) {
    // This is weak evidence, about which only rank 0 decides: while rank 0 is silent, the ranks
    // could blame different victims. If it stays silent, that itself is the failure.
    actions_.send({0}, Suspicion{code, rank, cause});
    return;
  }
  if (code == Errc::aborted && rank >= 0) {
    detector_.aborted(rank, cause, now);
  } else {
    const bool below_relay = rank > 0 && routes_.towards(0, rank) != rank;
    detector_.suspected(rank, code, cause, below_relay, now);
  }
  judge(now);
}

bool Protocol::relays(int peer) const {
  return !leads() && std::binary_search(children_.begin(), children_.end(), peer);
}

std::vector<int> Protocol::followers() const {
  if (!leads()) return children_;
  std::vector<int> everybody;
  for (int rank = 1; rank < settings_.size; ++rank) everybody.push_back(rank);
  return everybody;
}

void Protocol::accuse(int peer, const std::string& cause, Clock::time_point now) {
  if (relays(peer) || (peer == settings_.rank && !leads())) {
    below_.lost(peer, cause, now);
    judge_below(now);
  } else {
    detector_.lost(peer, cause, now);
    judge(now);
  }
}

/// A relay reports a lost child to rank 0, which may know better who failed.
void Protocol::judge_below(Clock::time_point now) {
  if (over_ || leads() || children_.empty() || reported_loss_) return;
  const std::optional<Verdict> verdict = below_.tick(now);
  if (!verdict) return;
  reported_loss_ = true;
  actions_.send({0}, PeerLost{verdict->rank, verdict->cause});
}

void Protocol::judge(Clock::time_point now) {
  if (over_) return;
  const std::optional<Verdict> verdict = detector_.tick(now);
  if (!verdict) return;
  // The relay that this rank gives up may still run. It must not take this rank for the culprit.
  if (!leads() && verdict->rank == parent_) {
    actions_.send({parent_}, PeerLost{parent_, verdict->cause});
  }
  over_ = true;
  actions_.failed(*verdict);
}

}  // namespace hvd::detail
