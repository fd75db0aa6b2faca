// Which moves are possible, faults, time, and what must hold at an end.
#include "explored_world.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include <hvd/core/internal/all_ranks.hpp>

#include "event_queue.hpp"
#include "rank_actions.hpp"
#include "state_reader.hpp"
#include "trace.hpp"

namespace hvd::explore {

using namespace detail;  // NOLINT: a test
using sim::Violation;
using Phase = RankFacts::Phase;
using Executor = RankFacts::Executor;
using Ending = RankFacts::Ending;

namespace {

constexpr std::chrono::milliseconds kTick{100};
constexpr std::uint8_t kLongPause = 5;  // ticks; others give a rank up after six

std::uint16_t argument(std::size_t value) { return static_cast<std::uint16_t>(value); }

}  // namespace

std::unique_ptr<Explorable> first_state(const Scenario& scenario) {
  if (scenario.elastic) return first_job(scenario);
  return std::make_unique<ExploredWorld>(scenario);
}

ExploredWorld::ExploredWorld(const Scenario& scenario)
    : scenario_(&scenario), now_(sim::time_point_at(0)), faults_left_(scenario.faults) {
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    ranks_.push_back(std::make_shared<ExploredRank>(scenario, rank, RankActions::of(rank), now_));
  }
}

ExploredRank& ExploredWorld::edit(int rank) {
  std::shared_ptr<ExploredRank>& mine = ranks_[index(rank)];
  if (mine.use_count() > 1) mine = std::make_shared<ExploredRank>(*mine);
  mine->known_hash.reset();
  return *mine;
}

/// Tells whether a rank that is cut off has another fault, which its cut hides from rank 0.
bool ExploredWorld::fault_is_hidden() const {
  return std::any_of(of_.begin(), of_.end(), [](const OfRank& rank) {
    return rank.cut && (rank.dead || rank.pause_ticks > 0);
  });
}

bool ExploredWorld::faulty(int rank) const {
  return of(rank).dead || of(rank).cut || of(rank).pause_ticks >= kLongPause;
}

std::vector<std::string> ExploredWorld::columns() const {
  std::vector<std::string> heads;
  for (int rank = 0; rank < scenario_->ranks; ++rank) heads.push_back(fmt::format("rank {}", rank));
  return heads;
}

StateHash ExploredWorld::hash() const {
  StateHasher hasher;
  hasher.word(static_cast<std::uint64_t>(faults_left_));
  for (int rank = 0; rank < scenario_->ranks; ++rank) {
    const OfRank& mine = of(rank);
    hasher.word((mine.dead ? 1U : 0U) + (mine.paused ? 2U : 0U) + (mine.gone ? 4U : 0U) +
                (mine.cut ? 8U : 0U) + 16U * mine.pause_ticks);
    if (!mine.dead) hasher.add(at(rank).hash(now_));
    for (int to = 0; to < scenario_->ranks; ++to) {
      const Channel& out = channel(rank, to);
      hasher.word(2 * out.items.size() + (out.closed ? 1 : 0));
      for (const Item& item : out.items) hasher.add(item.hash);
    }
  }
  return hasher.hash();
}

// ---------------------------------------------------------------------------------------------
// Moves.

std::vector<Move> ExploredWorld::moves() const {
  std::vector<Move> moves;
  bool somebody_ticks = false;
  for (int rank = 0; rank < scenario_->ranks; ++rank) {
    if (!running(rank)) continue;
    add_moves(rank, moves);
    somebody_ticks = somebody_ticks || at(rank).ending == Ending::none;
  }
  // Messages and threads are fast as measured by the ticks, but a user may let others wait.
  const bool quiet = std::all_of(moves.begin(), moves.end(), [](const Move& move) {
    return move.kind == Move::Kind::impatience;
  });
  if (quiet && somebody_ticks) moves.push_back({Move::Kind::time});
  add_faults(moves);
  return moves;
}

void ExploredWorld::add_moves(int rank, std::vector<Move>& moves) const {
  using Kind = Move::Kind;
  const ExploredRank& it = at(rank);
  const auto me = static_cast<std::uint8_t>(rank);
  if (user_can_act(it)) moves.push_back({Kind::user, me});
  if (!it.tasks.empty()) moves.push_back({Kind::task, me});
  for (int from = 0; from < scenario_->ranks; ++from) {
    if (from != rank && connected(from, rank) && !channel(from, rank).items.empty()) {
      moves.push_back({Kind::deliver, me, argument(index(from))});
    }
  }
  if (it.can_take()) moves.push_back({Kind::take, me});
  if (it.phase == Phase::taken) moves.push_back({Kind::arrive, me});
  if (it.phase == Phase::moved || it.phase == Phase::cancelled) {
    moves.push_back({Kind::complete, me});
  }
  if ((it.phase == Phase::at_fence || it.phase == Phase::moving) && misses_member(it)) {
    moves.push_back({Kind::fail, me, 0});
    for (int other = 0; other < scenario_->ranks; ++other) {
      const bool gave_up = of(other).gone || at(other).broken;
      if (other != rank && gave_up) moves.push_back({Kind::fail, me, argument(index(other) + 1)});
    }
  }
  const bool ends = it.executor == Executor::draining || it.executor == Executor::stopped;
  if (ends && !it.busy() && !it.can_take()) moves.push_back({Kind::executor_ends, me});
  if (!it.left && (it.ending == Ending::shut_down || (it.ending == Ending::failed && it.over()))) {
    moves.push_back({Kind::leave, me});
  }
  if (it.waits_for_others()) moves.push_back({Kind::impatience, me});
}

bool ExploredWorld::user_can_act(const ExploredRank& rank) const {
  if (rank.finished || rank.closed) return false;
  const auto& program = scenario_->programs[index(rank.rank)];
  if (rank.step == program.size()) return true;
  const ScenarioStep& step = program[rank.step];
  if (step.kind == ScenarioStep::Kind::wait_all) return !rank.has_pending();
  for (std::size_t i = 0; i < rank.step; ++i) {
    if (rank.outcomes[i] == RankFacts::kPending &&
        key_of(program[i].request) == key_of(step.request)) {
      return false;
    }
  }
  return true;
}

/// Tells whether the rank notices that a member takes part no more. A cut hides it.
bool ExploredWorld::misses_member(const ExploredRank& rank) const {
  for (const int member : members(rank.batch)) {
    const bool to_rank_0 = (member == 0) != (rank.rank == 0);
    const bool hidden = to_rank_0 && (of(member).cut || of(rank.rank).cut);
    if (member != rank.rank && of(member).gone && !hidden) return true;
  }
  return false;
}

void ExploredWorld::add_faults(std::vector<Move>& moves) const {
  using Kind = Move::Kind;
  for (int rank = 0; rank < scenario_->ranks; ++rank) {
    const auto me = static_cast<std::uint8_t>(rank);
    if (of(rank).dead) continue;
    if (of(rank).paused) moves.push_back({Kind::proceed, me});
    if (faults_left_ == 0 || at(rank).left) continue;
    if (scenario_->crash) {
      std::size_t ways = 1;
      for (int to = 0; to < scenario_->ranks; ++to) ways *= channel(rank, to).items.size() + 1;
      for (std::size_t lost = 0; lost < ways; ++lost) {
        moves.push_back({Kind::crash, me, argument(lost)});
      }
    }
    if (at(rank).ending != Ending::none) continue;
    if (scenario_->pause && !of(rank).paused) moves.push_back({Kind::pause, me});
    if (scenario_->cut && rank != 0 && !of(rank).cut && !of(0).dead) {
      moves.push_back({Kind::cut, me});
    }
  }
}

void ExploredWorld::apply(const Move& move, std::vector<ChartLine>* chart) {
  chart_ = chart;
  RankActions::enter(*this);
  const int rank = move.rank;
  switch (move.kind) {
    case Move::Kind::user:
      user_acts(edit(rank));
      break;
    case Move::Kind::task:
      run_task(edit(rank));
      break;
    case Move::Kind::deliver:
      deliver(move.argument, rank);
      break;
    case Move::Kind::take:
      take(edit(rank));
      break;
    case Move::Kind::arrive:
      arrive(edit(rank));
      break;
    case Move::Kind::complete:
      complete(edit(rank));
      break;
    case Move::Kind::fail: {
      ExploredRank& it = edit(rank);
      it.broken = true;
      it.tasks.push_back({LoopTask::Kind::collective_failed, move.argument - 1});
      say(rank, "its collective fails, and seems to miss rank {}", move.argument - 1);
      become_idle(it);
      break;
    }
    case Move::Kind::executor_ends:
      executor_ends(edit(rank));
      break;
    case Move::Kind::leave:
      say(rank, "closes its streams");
      edit(rank).left = true;
      close(rank);
      break;
    case Move::Kind::impatience: {
      ExploredRank& it = edit(rank);
      it.impatient = it.epoch;
      say(rank, "has waited, asks for a thaw");
      it.protocol.thaw_wanted(now_);
      break;
    }
    case Move::Kind::time:
      pass_time();
      break;
    case Move::Kind::crash:
      crash(rank, move.argument);
      break;
    case Move::Kind::pause:
      say(rank, "PAUSES");
      of_[index(rank)].paused = true;
      --faults_left_;
      break;
    case Move::Kind::proceed:
      say(rank, "PROCEEDS");
      of_[index(rank)].paused = false;
      break;
    case Move::Kind::cut:
      say(rank, "IS CUT OFF from rank 0");
      of_[index(rank)].cut = true;
      --faults_left_;
      break;
    default:
      throw std::logic_error("a move of another model");
  }
  chart_ = nullptr;
}

// ---------------------------------------------------------------------------------------------
// Time and faults.

void ExploredWorld::pass_time() {
  now_ += kTick;
  if (chart_) chart_->push_back({0, -1, "(a tick passes)"});
  time_passes_ = true;
  heartbeats_.clear();
  for (int rank = 0; rank < scenario_->ranks; ++rank) {
    if (of(rank).paused && of(rank).pause_ticks < kLongPause) ++of_[index(rank)].pause_ticks;
    ExploredRank& it = edit(rank);  // its hash contains times
    if (!running(rank) || it.ending != Ending::none) continue;
    it.protocol.tick({}, now_);
    for (const int neighbour : it.protocol.neighbours()) {
      if (connected(rank, neighbour)) it.protocol.host_answered(neighbour, now_);
    }
  }
  time_passes_ = false;
  const Bytes heartbeat = encode(Heartbeat{});
  for (const auto& [from, to] : heartbeats_) {
    if (at(to).ending == Ending::none) edit(to).protocol.received({from}, heartbeat, now_);
  }
}

void ExploredWorld::crash(int rank, int lost) {
  say(rank, "CRASHES");
  --faults_left_;
  of_[index(rank)].dead = true;
  of_[index(rank)].gone = true;
  for (int to = 0; to < scenario_->ranks; ++to) {
    auto& items = channel(rank, to).items;
    const int ways = static_cast<int>(items.size()) + 1;
    const int drop = lost % ways;
    lost /= ways;
    if (drop > 0) say(rank, "its last {} messages to rank {} are lost", drop, to);
    items.resize(items.size() - static_cast<std::size_t>(drop));
  }
  close(rank);
}

void ExploredWorld::close(int rank) {
  for (int peer = 0; peer < scenario_->ranks; ++peer) {
    if (peer == rank || (peer == 0) == (rank == 0)) continue;
    Channel& out = channel(rank, peer);
    if (!out.closed && !of(peer).dead && at(peer).ending == Ending::none) {
      out.items.push_back({nullptr, {1, 1}, false});
    }
    out.closed = true;
    channel(peer, rank).closed = true;
    channel(peer, rank).items.clear();
  }
}

// ---------------------------------------------------------------------------------------------
// The end.

void ExploredWorld::check_end() const {
  bool failed = false;
  bool shut_down = false;
  int culprit = -1;
  for (int rank = 0; rank < scenario_->ranks; ++rank) {
    if (!running(rank)) continue;
    const ExploredRank& it = at(rank);
    if (!it.over() || it.has_pending()) {
      throw Violation("everything ends", fmt::format("rank {} waits for ever", rank));
    }
    if (faulty(rank)) continue;
    if (it.ending == Ending::shut_down) {
      shut_down = true;
      continue;
    }
    if (failed && culprit != it.culprit) {
      throw Violation("the same culprit for everybody",
                      fmt::format("rank {} blames {}, another one {}", rank, it.culprit, culprit));
    }
    failed = true;
    culprit = it.culprit;
  }
  // Only when rank 0 itself is lost may some ranks have an acknowledgement and others not.
  if (failed && shut_down && !faulty(0)) {
    throw Violation("the same end for everybody", "some ranks left in peace");
  }
  if (failed) return;
  for (const Meaning& meaning : scenario_->meanings) {
    int first = -1;
    for (const int member : meaning.members) {
      const int step = meaning.steps[index(member)];
      if (step < 0 || !running(member) || faulty(member)) continue;
      const std::uint8_t outcome = at(member).outcomes[static_cast<std::size_t>(step)];
      // A program that ends early does not submit the rest.
      if (first >= 0 && outcome != first) {
        throw Violation("the same outcome on every rank", meaning.name);
      }
      first = outcome;
    }
  }
}

}  // namespace hvd::explore
