// Which moves are possible, faults, time, and what must hold at an end.
#include "explored_job.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "event_queue.hpp"
#include "state_reader.hpp"
#include "trace.hpp"
#include "worker_steps.hpp"

namespace hvd::explore {

using detail::Membership;
using sim::Violation;
using Kind = Move::Kind;
using Phase = ExploredWorker::Phase;

namespace {

constexpr std::chrono::seconds kFrozen{2};  // before others notice that a rank is stopped
constexpr std::chrono::seconds kSlow{10};   // timers up to this one expire while programs compute
constexpr int kToHvdrun = 0;
constexpr int kToWorker = 1;
constexpr int kReport = 2;
constexpr int kKill = 3;

std::uint16_t argument(int value) { return static_cast<std::uint16_t>(value); }

std::uint16_t argument(const Blame& blame) {
  return argument(blame.rank < 0 ? 0 : 1 + 2 * blame.rank + (blame.left ? 1 : 0));
}

Blame blame_of(std::uint16_t argument) {
  if (argument == 0) return {};
  return {(argument - 1) / 2, (argument - 1) % 2 == 1};
}

Membership::Options options_of(const Scenario& scenario) {
  Membership::Options options;
  options.min_np = scenario.ranks - 1;
  options.max_np = scenario.ranks + 1;
  return options;
}

/// The last rank has a host of its own.
std::vector<int> slots_of(const Scenario& scenario) { return {scenario.ranks - 1, 1}; }

bool is_slow(const ExploredWorker& worker) {
  return worker.phase == Phase::loading || worker.computing;
}

}  // namespace

std::unique_ptr<Explorable> first_job(const Scenario& scenario) {
  return std::make_unique<ExploredJob>(scenario);
}

ExploredJob::ExploredJob(const Scenario& scenario)
    : scenario_(&scenario),
      options_(options_of(scenario)),
      samples_(3 * scenario.ranks),
      now_(sim::time_point_at(0)),
      faults_left_(scenario.faults),
      membership_(options_) {
  list(slots_of(scenario));
}

std::vector<std::string> ExploredJob::columns() const {
  std::vector<std::string> heads{"hvdrun"};
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    heads.push_back(fmt::format("worker {} on host {}", i, workers_[i].host));
  }
  return heads;
}

StateHash ExploredJob::hash() const {
  StateHasher hasher;
  hasher.word(static_cast<std::uint64_t>(faults_left_));
  hasher.word((end_ ? 1U + static_cast<unsigned>(end_->code) : 0U) * 2 + (had_fault_ ? 1U : 0U));
  detail::StateReader::read(hasher, membership_, now_);
  for (const int slots : slots_) hasher.word(static_cast<std::uint64_t>(slots));
  for (const ExploredWorker& worker : workers_) worker.add_to(hasher, now_, samples_);
  hasher.word(generations_.size());
  for (const auto& [number, generation] : generations_) generation.add_to(hasher, samples_);
  hasher.word(to_serve_ ? 1 + to_serve_->later.size() : 0);
  if (to_serve_) {  // the form is the last one, which the facts have
    for (const Membership::Tell& tell : to_serve_->later) {
      hasher.word(2 * static_cast<std::uint64_t>(tell.worker) + tell.order.index());
    }
  }
  facts_.add_to(hasher);
  return hasher.hash();
}

// ---- moves

std::vector<Move> ExploredJob::moves() const {
  std::vector<Move> moves;
  if (end_) return moves;
  if (to_serve_) moves.push_back({Kind::task});
  bool is_quiet = moves.empty();
  bool has_slow = false;
  for (int worker = 0; worker < static_cast<int>(workers_.size()); ++worker) {
    add_moves(worker, moves);
  }
  for (const Move& move : moves) {
    const bool slow = move.kind == Kind::user && is_slow(at(move.rank));
    has_slow = has_slow || slow;
    is_quiet = is_quiet && slow;
  }
  const auto due = is_quiet ? next_timer() : std::nullopt;
  if (due && (!has_slow || *due - now_ <= kSlow)) moves.push_back({Kind::time});
  add_faults(moves);
  return moves;
}

void ExploredJob::add_moves(int worker, std::vector<Move>& moves) const {
  const ExploredWorker& it = at(worker);
  const auto me = static_cast<std::uint8_t>(worker);
  if (!it.to_hvdrun.empty()) moves.push_back({Kind::deliver, me, kToHvdrun});
  if (it.report) moves.push_back({Kind::deliver, me, kReport});
  if (it.kill) moves.push_back({Kind::deliver, me, kKill});
  if (!it.running()) return;
  if (!it.to_worker.empty()) moves.push_back({Kind::deliver, me, kToWorker});
  if (is_slow(it) || it.phase == Phase::leaving) moves.push_back({Kind::user, me});
  if (it.phase == Phase::starting && now_ >= it.start_ends) {
    moves.push_back({Kind::impatience, me});
  }
  if (it.phase != Phase::starting && it.phase != Phase::training) return;
  const ExploredGeneration& generation = generations_.at(it.generation);
  const int last_vote = it.votes - 1;
  if (it.counted < it.votes && generation.may_complete(CollectiveKind::vote, last_vote, it.rank)) {
    moves.push_back({Kind::complete, me, 1});
  }
  if (it.awaits && *it.awaits != CollectiveKind::vote &&
      generation.may_complete(*it.awaits, index_of(it), it.rank)) {
    moves.push_back({Kind::complete, me, 0});
  }
  for (const Blame& blame : blames(it)) moves.push_back({Kind::fail, me, argument(blame)});
}

int ExploredJob::index_of(const ExploredWorker& worker) {
  using Collective = CollectiveKind;
  const bool of_step = worker.awaits == Collective::gradients ||
                       worker.awaits == Collective::step || worker.awaits == Collective::metric;
  return of_step ? worker.step : 0;
}

bool ExploredJob::is_seen_silent(const ExploredWorker& worker) const {
  return worker.paused_at && now_ >= *worker.paused_at + kFrozen;
}

/// Whom the error of this rank may blame now: one that has left, one that is silent, or one whom
/// another rank has blamed. Empty: it has no reason to fail.
std::vector<Blame> ExploredJob::blames(const ExploredWorker& observer) const {
  std::vector<Blame> found;
  if (observer.phase != Phase::training) return found;
  const auto& members = generations_.at(observer.generation).members;
  for (int rank = 0; rank < std::ssize(members); ++rank) {
    const auto& member = members[static_cast<std::size_t>(rank)];
    if (rank == observer.rank || member.in_peace) continue;
    if (member.left) {
      found.push_back({rank, true});
      const Blame why = member.why.rank == observer.rank ? Blame() : member.why;
      found.push_back(why);
    } else if (is_seen_silent(at(member.worker))) {
      found.push_back({rank, false});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Blame& a, const Blame& b) { return argument(a) < argument(b); });
  found.erase(
      std::unique(found.begin(), found.end(),
                  [](const Blame& a, const Blame& b) { return argument(a) == argument(b); }),
      found.end());
  return found;
}

std::optional<Clock::time_point> ExploredJob::next_timer() const {
  std::optional<Clock::time_point> next;
  const auto consider = [&](const std::optional<Clock::time_point>& due) {
    if (due && *due > now_ && (!next || *due < *next)) next = due;
  };
  consider(membership_.wake_up());
  for (const ExploredWorker& worker : workers_) {
    if (worker.paused_at) consider(*worker.paused_at + kFrozen);
    if (worker.phase == Phase::starting && worker.running()) consider(worker.start_ends);
  }
  return next;
}

void ExploredJob::add_faults(std::vector<Move>& moves) const {
  for (int worker = 0; worker < static_cast<int>(workers_.size()); ++worker) {
    const ExploredWorker& it = at(worker);
    const auto me = static_cast<std::uint8_t>(worker);
    if (it.paused_at) moves.push_back({Kind::proceed, me});
    if (!it.alive() || faults_left_ == 0) continue;
    if (scenario_->crash) moves.push_back({Kind::crash, me});
    if (scenario_->pause && !it.paused_at) moves.push_back({Kind::pause, me});
    if (scenario_->leave && !it.asked && it.running()) {
      moves.push_back({Kind::asked_to_leave, me});
    }
  }
  if (faults_left_ == 0 || !scenario_->slot_added) return;
  if (slots_ == slots_of(*scenario_)) moves.push_back({Kind::slot_added});
  if (!scenario_->host_loss) return;
  for (std::size_t host = 0; host < slots_.size(); ++host) {
    const auto me = static_cast<std::uint8_t>(host);
    if (slots_[host] > 0) moves.push_back({Kind::host_removed, me});
    const bool is_used = std::any_of(workers_.begin(), workers_.end(), [host](const auto& worker) {
      return worker.host == host && !worker.known_over;
    });
    if (is_used) moves.push_back({Kind::agent_lost, me});
  }
}

void ExploredJob::apply(const Move& move, std::vector<ChartLine>* chart) {
  chart_ = chart;
  const int worker = move.rank;
  if (move.kind > Kind::time && move.kind != Kind::proceed) {
    --faults_left_;
    had_fault_ = had_fault_ || move.kind != Kind::slot_added;
  }
  switch (move.kind) {
    case Kind::user:
      if (at(worker).phase == Phase::loading) {
        WorkerSteps(*this, worker).say_waits({});
      } else if (at(worker).computing) {
        WorkerSteps(*this, worker).end_computing();
      } else {
        WorkerSteps(*this, worker).die(0);
      }
      break;
    case Kind::task:
      serve();
      break;
    case Kind::deliver:
      deliver(worker, move.argument);
      break;
    case Kind::complete: {
      const ExploredWorker& it = at(worker);
      const bool vote = move.argument == 1;
      WorkerSteps(*this, worker)
          .complete(vote ? CollectiveKind::vote : *it.awaits, vote ? it.votes - 1 : index_of(it));
      break;
    }
    case Kind::fail: {
      const Blame blame = blame_of(move.argument);
      say(worker, "its context fails, blames rank {}", blame.rank);
      WorkerSteps(*this, worker).end_generation(blame);
      break;
    }
    case Kind::impatience:
      WorkerSteps(*this, worker).give_up_start();
      break;
    case Kind::time:
      now_ = *next_timer();
      say(-1, "(time passes)");
      if (const auto due = membership_.wake_up(); due && *due <= now_) {
        obey(membership_.on_time(now_));
      }
      break;
    case Kind::crash:
      say(worker, "CRASHES");
      WorkerSteps(*this, worker).die(137);
      break;
    case Kind::pause:
      say(worker, "PAUSES");
      at(worker).was_paused = true;
      at(worker).paused_at = now_;
      break;
    case Kind::proceed:
      say(worker, "PROCEEDS");
      at(worker).paused_at.reset();
      break;
    case Kind::asked_to_leave:
      WorkerSteps(*this, worker).ask_to_leave();
      break;
    case Kind::slot_added: {
      std::vector<int> slots = slots_;
      ++slots.back();
      list(slots);
      break;
    }
    case Kind::host_removed: {
      std::vector<int> slots = slots_;
      slots[move.rank] = 0;
      list(slots);
      break;
    }
    case Kind::agent_lost:
      lose_agent(move.rank);
      break;
    default:
      throw std::logic_error("a move of another model");
  }
  forget_generations();
  chart_ = nullptr;
}

void ExploredJob::deliver(int worker, int what) {
  switch (what) {
    case kToHvdrun:
      return hear(worker);
    case kReport:
      return hear_end(worker);
    case kKill:
      at(worker).kill = false;
      say_message(-1, worker, "kill");
      return WorkerSteps(*this, worker).die(137);
    default:
      say_message(-1, worker, "an order");
      return WorkerSteps(*this, worker).on_order();
  }
}

/// A generation is over when none of its members takes part in it.
void ExploredJob::forget_generations() {
  std::erase_if(generations_, [this](const auto& one) {
    const auto& members = one.second.members;
    return std::all_of(members.begin(), members.end(), [&](const auto& member) {
      const ExploredWorker& worker = at(member.worker);
      return member.left || !worker.alive() || worker.generation > one.first;
    });
  });
  if (!generations_.empty()) facts_.forget_before(generations_.begin()->first);
}

// ---- ends

/// Every worker has ended, waits for hvdrun, or is stopped. If one is stopped, nobody can tell that
/// it does not compute, so the job may stand still.
bool ExploredJob::nobody_can_proceed() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const ExploredWorker& worker) {
    return !worker.alive() || worker.phase == Phase::waiting || worker.paused_at;
  });
}

void ExploredJob::check_end() const {
  if (end_) return;
  const bool has_stopped = std::any_of(workers_.begin(), workers_.end(),
                                       [](const auto& worker) { return worker.paused_at; });
  if (has_stopped && nobody_can_proceed()) return;
  throw Violation("liveness", "nothing happens any more");
}

}  // namespace hvd::explore
