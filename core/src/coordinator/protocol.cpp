#include "coordinator/protocol.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/error.hpp>

#include "coordinator/replay.hpp"

namespace hvd {
namespace {

// One batch runs while the next is agreed on; what becomes ready meanwhile is fused.
constexpr std::size_t kBatchesInFlight = 2;

void expect(bool condition, std::string_view what) {
  if (!condition) throw Error(Errc::protocol, fmt::format("unexpected message: {}", what));
}

bool has_group(const Agreement& agreement) {
  const auto* tensors = std::get_if<FusedTensors>(&agreement);
  return tensors && std::any_of(tensors->begin(), tensors->end(), [](const ReadyTensor& tensor) {
           return !tensor.request.group.empty();
         });
}

}  // namespace

Protocol::Protocol(const Settings& settings, Actions& actions, Clock::time_point now)
    : settings_(settings),
      routes_(settings.size, settings.group),
      parent_(routes_.parent(settings.rank)),
      children_(routes_.children(settings.rank)),
      actions_(actions),
      detector_(settings.detector, now),
      members_(settings.detector, now),
      negotiator_(settings.size, settings.fusion_threshold),
      learner_({settings.freeze_after, usual_sizes(settings.fusion_threshold)}),
      reported_(static_cast<std::size_t>(settings.size)),
      begun_(static_cast<std::size_t>(settings.size)),
      stalls_reported_(now) {
  if (!leads()) detector_.watch(parent_, now);
  for (const int child : children_) (leads() ? detector_ : members_).watch(child, now);
}

// ---------------------------------------------------------------------------------------------
// What happened on this rank.

void Protocol::submitted(std::vector<Announcement> operations, Clock::time_point now) {
  if (over_ || operations.empty()) return;
  Submitted message{epoch_, std::move(operations)};
  if (leads()) {
    handle(settings_.rank, message, now);
  } else {
    actions_.send(0, message);
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
    actions_.send(0, ThawRequest{epoch_});
  }
}

void Protocol::collective_failed(Errc code, int culprit, const std::string& cause,
                                 Clock::time_point now) {
  suspect(code, culprit, cause, now);
}

void Protocol::abort(const std::string& reason, Clock::time_point now) {
  suspect(Errc::aborted, settings_.rank, reason, now);
}

void Protocol::goodbye(Clock::time_point now) {
  if (over_) return;
  leaving_ = true;
  if (leads()) {
    handle(settings_.rank, Goodbye{epoch_}, now);
  } else {
    actions_.send(0, Goodbye{epoch_});
  }
}

void Protocol::tick(Clock::time_point now) {
  if (over_) return;
  if (!leads()) actions_.send(parent_, Heartbeat{});
  for (const int child : children_) actions_.send(child, Heartbeat{});
  if (leads()) watch_stalls(now);
  judge_members(now);
  judge(now);
}

// ---------------------------------------------------------------------------------------------
// What came from elsewhere.

void Protocol::received(int from, std::span<const std::byte> bytes, Clock::time_point now) {
  if (over_) return;
  const int neighbour = routes_.towards(settings_.rank, from);
  (relays(neighbour) ? members_ : detector_).heard(neighbour, now);
  try {
    Message message = decode_message(bytes);
    std::visit([&](auto& it) { handle(from, it, now); }, message);
  } catch (const Error& error) {
    accuse(from, error.what(), now);
  }
}

void Protocol::lost(int peer, const std::string& cause, Clock::time_point now) {
  if (!over_) accuse(peer, cause, now);
}

void Protocol::handle(int from, Submitted& message, Clock::time_point now) {
  expect(leads(), "submitted");
  // Said before the sender knew of the last freeze or thaw: it says it again, or need not.
  if (message.epoch != epoch_) {
    expect(message.epoch < epoch_, "submitted in an epoch to come");
    return;
  }
  expect(mode_ == Mode::negotiating, "submitted while the schedule is frozen");
  negotiator_.submitted(from, std::move(message.operations), now);
  pump(now);
}

void Protocol::handle(int from, const Goodbye& message, Clock::time_point now) {
  expect(leads() && message.epoch <= epoch_, "goodbye");
  // What this rank submitted before goes before: it announces that again after the thaw, and says
  // goodbye again.
  if (mode_ == Mode::frozen) begin_thaw(now);
  if (mode_ != Mode::negotiating || message.epoch != epoch_) return;
  negotiator_.departed(from);
  pump(now);
}

void Protocol::handle(int, const Suspicion& message, Clock::time_point now) {
  expect(leads(), "suspicion");
  suspect(message.code, message.rank, message.cause, now);
}

void Protocol::handle(int from, Schedule& message, Clock::time_point) {
  expect(from == 0 && !leads(), "schedule");
  for (const Decision& decision : message.decisions) carry_out(decision);
}

void Protocol::handle(int from, const Farewell&, Clock::time_point) {
  expect(from == 0, "farewell");
  over_ = true;
  actions_.farewell();
}

void Protocol::handle(int from, const Poison& message, Clock::time_point) {
  expect(!leads() && (from == 0 || from == parent_), "poison");
  over_ = true;
  actions_.poisoned(message);
}

void Protocol::handle(int, const Heartbeat&, Clock::time_point) {}

void Protocol::handle(int, const ThawRequest& message, Clock::time_point now) {
  expect(leads(), "thaw request");
  if (message.epoch == epoch_ && mode_ == Mode::frozen) begin_thaw(now);
}

void Protocol::handle(int from, const Stopped& message, Clock::time_point now) {
  expect(leads() && mode_ == Mode::thawing && message.epoch == epoch_, "stopped");
  stopped(from, message.ticket, now);
}

void Protocol::handle(int from, const Thaw& message, Clock::time_point now) {
  expect(from == 0 && !leads(), "thaw");
  stop(message.epoch, now);
}

void Protocol::handle(int from, const Resume& message, Clock::time_point now) {
  expect(from == 0 && !leads(), "resume");
  resume(message, now);
}

void Protocol::handle(int from, const Lost& message, Clock::time_point now) {
  if (message.rank == settings_.rank) {
    // A child has waited for this rank long enough, and leaves. If this rank stood still it is
    // right, and the culprit; else the child is the one that is cut off, and its end shows it.
    if (const auto pause = detector_.stood_still(now)) {
      accuse(settings_.rank,
             fmt::format("stood still for {:.1f} s", std::chrono::duration<double>(*pause).count()),
             now);
    }
    return;
  }
  expect(leads() && message.rank >= from && message.rank < routes_.end_of(from), "lost");
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
  // Somebody failed: the end has to say who, not that all went well.
  if (!over_ && mode_ == Mode::negotiating && negotiator_.finished() && !detector_.suspects()) {
    send_to_all(Farewell{});
    handle(settings_.rank, Farewell{}, now);
  }
}

Batch Protocol::batch_for(int rank, const FusedTensors& tensors) const {
  const Request& first = tensors.front().request;
  const std::vector<int>& members = negotiator_.members(first.process_set);
  const auto place = static_cast<std::size_t>(
      std::lower_bound(members.begin(), members.end(), rank) - members.begin());
  Batch batch;
  batch.process_set = first.process_set;
  batch.contributors = tensors.front().contributors;
  // Some rank has joined and lacks one of them.
  const bool left_out = std::any_of(tensors.begin(), tensors.end(), [](const ReadyTensor& tensor) {
    return tensor.segments.empty();
  });
  for (const ReadyTensor& tensor : tensors) {
    batch.names.push_back(tensor.request.name);
    if (left_out) batch.requests.push_back(tensor.request);
    if (tensor.rows.empty()) continue;
    std::vector<std::int64_t>& rows = batch.rows.emplace_back();
    for (const auto& of_member : tensor.rows) {
      rows.push_back(of_member.size() == 1 ? of_member.front() : of_member.at(place));
    }
  }
  return batch;
}

void Protocol::hand_out(const std::vector<Agreement>& agreements) {
  std::vector<Schedule> schedules(static_cast<std::size_t>(settings_.size));
  const auto for_everybody = [&](const Decision& decision) {
    for (Schedule& schedule : schedules) schedule.decisions.push_back(decision);
  };
  const bool only_batches = std::all_of(
      agreements.begin(), agreements.end(),
      [](const Agreement& agreement) { return std::holds_alternative<FusedTensors>(agreement); });
  for (const Agreement& agreement : agreements) {
    if (const auto* decision = std::get_if<Decision>(&agreement)) {
      learner_.reset();
      for_everybody(*decision);
      continue;
    }
    const auto& tensors = std::get<FusedTensors>(agreement);
    for (const int rank : negotiator_.members(tensors.front().request.process_set)) {
      schedules[static_cast<std::size_t>(rank)].decisions.emplace_back(batch_for(rank, tensors));
    }
    learner_.observe(tensors);
    // A cycle holds groups as a whole.
    const bool divides =
        negotiator_.group_is_ready() ||
        std::any_of(&agreement + 1, agreements.data() + agreements.size(), has_group);
    if (!only_batches || divides) continue;
    if (const std::optional<Freeze> freeze = try_to_freeze()) {
      for_everybody(*freeze);
      break;  // the batches that follow are not lost: every rank has them pending
    }
  }
  for (int rank = 1; rank < settings_.size; ++rank) {
    Schedule& schedule = schedules[static_cast<std::size_t>(rank)];
    if (!schedule.decisions.empty()) actions_.send(rank, std::move(schedule));
  }
  for (const Decision& decision : schedules.front().decisions) carry_out(decision);
}

std::optional<Freeze> Protocol::try_to_freeze() {
  if (!negotiator_.everybody_works()) return std::nullopt;
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
  // Something else is on its way: it would thaw at once.
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
  send_to_all(Thaw{epoch_});
  stop(epoch_, now);
}

void Protocol::stopped(int rank, std::uint64_t ticket, Clock::time_point now) {
  const auto index = static_cast<std::size_t>(rank);
  if (reported_[index]) throw Error(Errc::protocol, fmt::format("rank {} stopped twice", rank));
  reported_[index] = true;
  begun_[index] = ticket;
  if (std::all_of(reported_.begin(), reported_.end(), [](bool yes) { return yes; })) {
    finish_thaw(now);
  }
}

void Protocol::finish_thaw(Clock::time_point now) {
  // How far the ranks got, for the learner: what all members have begun is finished.
  const std::uint64_t furthest = *std::max_element(begun_.begin(), begun_.end());
  std::uint64_t cycles = 0;
  std::vector<std::size_t> finished;
  if (furthest != 0) {
    const std::size_t batches = plan_.batches.size();
    const TicketPlace last = place_of(furthest, batches);
    cycles = last.cycle;
    for (std::size_t batch = 0; batch < batches; ++batch) {
      const Ticket ticket = ticket_of({epoch_, last.cycle, batch}, batches);
      bool by_all = true;
      for (int rank = 0; rank < settings_.size; ++rank) {
        const bool member = place_of(rank, plan_.batches[batch]) >= 0;
        if (member && begun_[static_cast<std::size_t>(rank)] < ticket) by_all = false;
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
  send_to_all(message);
  resume(message, now);
}

/// A group may have been divided: those of its members that ran are not announced again.
void Protocol::recall_groups() {
  std::map<OperationKey, std::map<std::string, int>> runs;  // by group: how often each member ran
  for (std::size_t batch = 0; batch < plan_.batches.size(); ++batch) {
    const PlannedBatch& planned = plan_.batches[batch];
    std::uint64_t reached = std::numeric_limits<std::uint64_t>::max();  // by all members
    for (int rank = 0; rank < settings_.size; ++rank) {
      if (place_of(rank, planned) < 0) continue;
      reached = std::min(reached, begun_[static_cast<std::size_t>(rank)]);
    }
    const bool ran = reached != 0 && batch <= place_of(reached, plan_.batches.size()).batch;
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
      if (times > whole) negotiator_.ran(group, name);
    }
  }
}

void Protocol::watch_stalls(Clock::time_point now) {
  if (settings_.stall_warn.count() > 0 && now - stalls_reported_ >= settings_.stall_warn) {
    stalls_reported_ = now;
    for (const Stall& stall : negotiator_.stalls(now, settings_.stall_warn)) {
      actions_.stalled(stall);
    }
  }
  if (settings_.stall_abort.count() > 0) {
    const std::vector<Stall> stalls = negotiator_.stalls(now, settings_.stall_abort);
    if (!stalls.empty()) {
      const Stall& stall = stalls.front();
      suspect(Errc::timeout, stall.missing.empty() ? -1 : stall.missing.front(),
              fmt::format("did not submit {} '{}', for which rank {} waited {} s",
                          to_string(stall.kind), stall.name, fmt::join(stall.submitted, ", "),
                          std::chrono::duration_cast<std::chrono::seconds>(stall.age).count()),
              now);
    }
  }
}

void Protocol::set_bucket_sizes(const BucketSizes& sizes) {
  negotiator_.set_fusion_threshold(sizes.threshold);
  learner_.set_bucket_sizes(sizes);
}

// ---------------------------------------------------------------------------------------------
// Every rank carries it out.

void Protocol::carry_out(const Decision& decision) {
  // The executor runs these, and says when it has.
  const bool runs = std::holds_alternative<Batch>(decision) ||
                    std::holds_alternative<SetAdded>(decision) ||
                    std::holds_alternative<SetRemoved>(decision);
  if (leads() && runs) ++in_flight_;
  if (const auto* batch = std::get_if<Batch>(&decision)) {
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
        if constexpr (!std::is_same_v<It, Batch> && !std::is_same_v<It, Freeze>) {
          actions_.carry_out(it);
        }
      },
      decision);
}

void Protocol::stop(std::uint32_t epoch, Clock::time_point now) {
  expect(epoch == epoch_ && mode_ != Mode::negotiating, "thaw");
  mode_ = Mode::thawing;
  const std::uint64_t ticket = actions_.stop_replay();
  if (leads()) {
    stopped(settings_.rank, ticket, now);
  } else {
    actions_.send(0, Stopped{epoch, ticket});
  }
}

void Protocol::resume(const Resume& message, Clock::time_point now) {
  expect(mode_ == Mode::thawing && message.epoch == epoch_ + 1 &&
             std::ssize(message.begun) == settings_.size,
         "resume");
  epoch_ = message.epoch;
  mode_ = Mode::negotiating;
  actions_.resume(message.begun);
  if (leaving_) goodbye(now);
  if (leads()) pump(now);
}

void Protocol::suspect(Errc code, int rank, const std::string& cause, Clock::time_point now) {
  if (over_) return;
  if (leads() && code == Errc::aborted && rank >= 0) {
    detector_.aborted(rank, cause, now);
  } else {
    detector_.suspected(rank, code, cause, now);
    if (!leads()) actions_.send(0, Suspicion{code, rank, cause});
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
    members_.lost(peer, cause, now);
    judge_members(now);
  } else {
    detector_.lost(peer, cause, now);
    judge(now);
  }
}

/// Rank 0 has the verdict: others may know better.
void Protocol::judge_members(Clock::time_point now) {
  if (over_ || leads() || children_.empty() || told_) return;
  const std::optional<Verdict> verdict = members_.tick(now);
  if (!verdict) return;
  told_ = true;
  actions_.send(0, Lost{verdict->rank, verdict->cause});
}

void Protocol::judge(Clock::time_point now) {
  if (over_) return;
  const std::optional<Verdict> verdict = detector_.tick(now);
  if (!verdict) return;
  // Whom this rank gives up may live: it must not take this rank for the culprit.
  if (!leads() && verdict->rank == parent_) {
    actions_.send(parent_, Lost{parent_, verdict->cause});
  }
  over_ = true;
  actions_.failed(*verdict);
}

void Protocol::send_to_all(const Message& message) {
  for (int peer = 1; peer < settings_.size; ++peer) actions_.send(peer, message);
}

}  // namespace hvd
