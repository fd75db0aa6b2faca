#include "worker_steps.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/splitmix64.hpp>

#include "trace.hpp"

namespace hvd::explore {

using detail::Standing;
using sim::Violation;
using sim::elastic::HeldShards;
using sim::elastic::Model;
using sim::elastic::SampleSet;
using Kind = CollectiveKind;
using Phase = ExploredWorker::Phase;

namespace {

constexpr std::chrono::seconds kStartTimeout{30};

int number_in(const detail::Assignment& assignment, std::string_view name) {
  for (const std::string& variable : assignment.variables) {
    if (variable.starts_with(name)) return std::stoi(variable.substr(name.size()));
  }
  throw Violation("protocol", "an assignment without a variable");
}

}  // namespace

ExploredGeneration& WorkerSteps::generation() const {
  return job_.generations_.at(self_.generation);
}

void WorkerSteps::arrive(Kind kind, int index) {
  generation().collective(kind, index).arrived |= 1U << self_.rank;
  if (kind != Kind::vote) self_.awaits = kind;
}

// ---- the process

void WorkerSteps::die(int code) {
  if (!self_.alive()) return;
  job_.say(number_, "ends with {}", code);
  if (self_.phase == Phase::starting || self_.phase == Phase::training) {
    auto& member = generation().members.at(static_cast<std::size_t>(self_.rank));
    member.left = true;
  }
  if (code != 0) job_.facts_.lost_process = true;
  self_.phase = Phase::over;
  self_.paused_at.reset();
  self_.to_worker.clear();
  self_.inbox.clear();
  self_.computing = false;
  self_.awaits.reset();
  self_.report = code;
}

// ---- ElasticWorker

void WorkerSteps::ask_to_leave() {
  job_.say(number_, "IS ASKED TO LEAVE");
  if (self_.phase == Phase::loading) return die(143);
  self_.asked = true;
  if (self_.phase == Phase::waiting && !self_.waits.leaves) tell();
}

void WorkerSteps::say_waits(const Blame& blame) {
  self_.phase = Phase::waiting;
  self_.computing = false;
  self_.awaits.reset();
  self_.waits = {.generation = self_.generation,
                 .blames = blame.rank,
                 .blamed_left = blame.rank >= 0 && blame.left,
                 .start_failed = self_.generation > 0 && !self_.synchronized};
  tell();
  read_orders();
}

void WorkerSteps::tell() {
  self_.waits.leaves = self_.asked;
  job_.say(number_, "waits after {}, blames {}{}{}{}", self_.waits.generation, self_.waits.blames,
           self_.waits.blamed_left ? " (left)" : "", self_.waits.leaves ? ", leaves" : "",
           self_.waits.start_failed ? ", not started" : "");
  self_.to_hvdrun.emplace_back(encode(self_.waits));
}

void WorkerSteps::on_order() {
  self_.inbox.push_back(self_.to_worker.front());
  self_.to_worker.erase(self_.to_worker.begin());
  if (self_.phase == Phase::waiting) read_orders();
  // The start of a context ends when something can be read from the socket.
  if (self_.phase == Phase::starting && !self_.inbox.empty()) end_generation({});
}

void WorkerSteps::read_orders() {
  while (self_.phase == Phase::waiting && !self_.inbox.empty()) {
    const detail::ElasticOrder order = detail::decode_elastic_order(*self_.inbox.front().bytes);
    self_.inbox.erase(self_.inbox.begin());
    if (std::holds_alternative<detail::Leave>(order)) {
      self_.phase = Phase::leaving;
    } else if (const auto* assignment = std::get_if<detail::Assignment>(&order)) {
      take(*assignment);
    }
  }
}

void WorkerSteps::take(const detail::Assignment& assignment) {
  if (assignment.generation <= self_.generation) {
    throw Violation("protocol", "an assignment to an earlier generation");
  }
  self_.generation = assignment.generation;
  self_.rank = number_in(assignment, "HVD_RANK=");
  const auto& members = generation().members;
  if (number_in(assignment, "HVD_SIZE=") != generation().size() ||
      members.at(static_cast<std::size_t>(self_.rank)).worker != number_) {
    throw Violation("protocol", "another size or rank");
  }
  self_.phase = Phase::starting;
  self_.synchronized = self_.change_ordered = false;
  self_.step = self_.votes = self_.counted = 0;
  if (!self_.inbox.empty()) return end_generation({});
  self_.start_ends = job_.now_ + kStartTimeout;
  arrive(Kind::start, 0);
}

void WorkerSteps::give_up_start() {
  const unsigned missing =
      generation().everybody() & ~generation().collective(Kind::start, 0).arrived;
  const bool is_one = missing != 0 && (missing & (missing - 1)) == 0;
  Blame blame;
  for (int rank = 0; is_one && rank < generation().size(); ++rank) {
    if ((missing >> rank & 1U) != 0 && rank != self_.rank) blame = {rank, false};
  }
  job_.say(number_, "gives the start up");
  end_generation(blame);
}

void WorkerSteps::end_generation(const Blame& blame) {
  if (self_.current.division.number != 0) {
    self_.held.push_back(std::exchange(self_.current, {}));
  }
  if (self_.standing.kind == Standing::whole) self_.standing.certain = 1;
  auto& member = generation().members.at(static_cast<std::size_t>(self_.rank));
  member.left = true;
  member.why = blame;
  say_waits(blame);
}

void WorkerSteps::complete(Kind kind, int index) {
  generation().collective(kind, index).completed |= 1U << self_.rank;
  if (kind == Kind::vote) {
    ++self_.counted;
    if (self_.awaits != Kind::vote) return;
    self_.awaits.reset();
    return read_vote_and_vote_again();
  }
  self_.awaits.reset();
  switch (kind) {
    case Kind::start:
      generation().members.at(static_cast<std::size_t>(self_.rank)).up = true;
      return gather();
    case Kind::standings:
      return choose();
    case Kind::state:
      return receive();
    case Kind::shards:
      return compare_shards();
    case Kind::gradients:
      self_.current.pending = stepped();
      self_.current.division.pending = 1;
      return arrive(Kind::step, self_.step);
    case Kind::step:
      return applied();
    case Kind::metric:
      return end_iteration();
    case Kind::end:
      return end();
    case Kind::vote:
      return;
  }
}

// ---- elastic_run and ElasticState

void WorkerSteps::gather() {
  self_.phase = Phase::training;
  const auto rank = static_cast<std::size_t>(self_.rank);
  generation().standings[rank] = self_.standing;
  for (const HeldShards& one : self_.held) {
    generation().divisions[rank].push_back(one.division);
  }
  generation().newest_division = std::max(generation().newest_division, self_.newest_division);
  generation().temporary_commit = generation().temporary_commit || self_.temporary_commit;
  job_.facts_.gathers(self_);
  arrive(Kind::standings, 0);
}

void WorkerSteps::choose() {
  std::vector<Standing> all = generation().standings;
  self_.newest_division = generation().newest_division;
  self_.temporary_commit = generation().temporary_commit;
  detail::StateSource& source = self_.source;
  try {
    source = detail::choose_source(all, generation().divisions);
  } catch (const Error&) {
    job_.facts_.no_source(self_, job_.scenario_->mirrored);
    return die(1);
  }
  go_on_with_shards();
  if (!source.from_commit) {
    self_.standing.steps = all[static_cast<std::size_t>(self_.rank)].steps;
  }
  const Standing best = all[static_cast<std::size_t>(source.rank)];
  const bool is_source = self_.rank == source.rank;
  const bool is_there =
      source.from_commit ? self_.standing.commits == best.commits : self_.standing == best;
  const bool is_untrained = best.steps == 0 && best.iterations == 0 && best.commits == 0;
  if (is_there && source.from_commit) {
    self_.model = self_.commit_model;
    self_.progress = self_.commit_progress;
  } else if (is_there && self_.standing.kind == Standing::whole) {
    // The product restores its snapshot here. The model has its state at the last step anyway.
  } else if (is_source) {
    self_.standing.kind = Standing::whole;
  } else {
    // While it receives, its state is a mixture, for which another digest stands.
    self_.model.digest = splitmix64(self_.model.digest);
    if (!is_untrained) self_.standing.kind = Standing::damaged;
    self_.model.damaged = !is_untrained;
  }
  const bool all_have_it =
      !source.from_commit && best.kind == Standing::whole &&
      std::all_of(all.begin(), all.end(), [&](const Standing& one) { return one == best; });
  if (all_have_it) return assemble();
  if (is_source) {
    generation().sent_model = self_.model;
    generation().sent_standing = self_.standing;
    generation().sent_progress = self_.progress;
  }
  arrive(Kind::state, 0);
}

void WorkerSteps::receive() {
  self_.model = generation().sent_model;
  self_.progress = generation().sent_progress;
  self_.standing.steps = generation().sent_standing.steps;
  self_.standing.iterations = generation().sent_standing.iterations;
  assemble();
}

/// Makes the step that others have made, and forgets the divisions that are not used.
void WorkerSteps::go_on_with_shards() {
  const std::int64_t used = self_.source.from_commit ? 0 : self_.source.division;
  std::erase_if(self_.held, [used](const HeldShards& one) { return one.division.number != used; });
  for (HeldShards& held : self_.held) {
    if (held.division.pending != 0 && held.division.steps < self_.source.division_steps) {
      self_.model = held.pending;
      held.digest = self_.model.digest;
      ++held.division.steps;
    }
    held.division.pending = 0;
    generation().shards[static_cast<std::size_t>(self_.rank)] = held;
  }
}

void WorkerSteps::assemble() {
  if (self_.source.from_commit || self_.source.division == 0) return begin_generation();
  arrive(Kind::shards, 0);
}

/// The parameters come from the shards, not from the rank that sends the rest of the state.
void WorkerSteps::compare_shards() {
  for (std::size_t shard = 0; shard < self_.source.shards.size(); ++shard) {
    const auto [rank, is_mirror] = self_.source.shards[shard];
    const HeldShards& sent = generation().shards[static_cast<std::size_t>(rank)];
    const bool is_whole = sent.digest == self_.model.digest && sent.has(shard, is_mirror);
    // A missing or wrong shard gives parameters that no step produced, which JobFacts notices.
    if (!is_whole) self_.model.digest = splitmix64(self_.model.digest);
  }
  begin_generation();
}

void WorkerSteps::begin_generation() {
  std::int64_t commits = 0;
  for (const Standing& one : generation().standings) commits = std::max(commits, one.commits);
  self_.standing.kind = Standing::whole;
  self_.standing.certain = 1;
  self_.finished = false;
  self_.synchronized = self_.has_had_state = true;
  self_.model.interrupt();
  self_.recorded = self_.progress.recorded;
  if (job_.scenario_->mirrored) {
    const bool of_nothing = !self_.source.from_commit && self_.source.division == 0;
    self_.newest_division = of_nothing ? 1 : self_.newest_division + 1;
    self_.current = {.division = {.number = self_.newest_division,
                                  .rank = self_.rank,
                                  .ranks = generation().size()},
                     .digest = self_.model.digest};
  }
  if (std::exchange(self_.temporary_commit, false)) {
    self_.standing.commits = 0;
  } else if (commits > 0) {
    commit(commits + 1);
  }
  job_.facts_.synchronized(self_);
  next_step();
}

void WorkerSteps::commit(std::int64_t number) {
  self_.commit_model = self_.model;
  self_.commit_progress = self_.progress;
  self_.standing.commits = number;
}

// ---- the training loop

SampleSet WorkerSteps::next_batch() const {
  SampleSet batch = 0;
  int count = generation().size();
  for (int i = 0; i < job_.samples_ && count > 0; ++i) {
    if ((self_.recorded >> i & 1U) != 0) continue;
    batch |= SampleSet{1} << i;
    --count;
  }
  return batch;
}

void WorkerSteps::next_step() {
  self_.batch = next_batch();
  if (self_.batch != 0) {
    self_.computing = true;
    return;
  }
  self_.finished = true;
  shut_down();
}

void WorkerSteps::end_computing() {
  self_.computing = false;
  arrive(job_.scenario_->mirrored ? Kind::gradients : Kind::step, self_.step);
}

Model WorkerSteps::stepped() const {
  Model model = self_.model;
  model.apply(self_.generation, self_.batch);
  return model;
}

void WorkerSteps::applied() {
  self_.model = stepped();
  if (job_.scenario_->mirrored) {
    self_.held.clear();  // all ranks have the division in which they step now
    ++self_.current.division.steps;
    self_.current.division.pending = 0;
    self_.current.digest = self_.model.digest;
  }
  ++self_.standing.steps;
  job_.say(number_, "completes step {} of generation {}", self_.model.steps, self_.generation);
  job_.facts_.step_completed(self_);
  // A metric is reduced between the step and the end of the iteration.
  arrive(Kind::metric, self_.step);
}

void WorkerSteps::end_iteration() {
  ++self_.step;
  ++self_.standing.iterations;
  self_.recorded |= self_.batch;
  self_.progress = {0, self_.recorded};
  self_.model.open = 0;
  await_last_vote();
}

void WorkerSteps::await_last_vote() {
  if (self_.counted == self_.votes) return read_vote_and_vote_again();
  self_.awaits = Kind::vote;
}

/// As `Context::agree_on_change`: reads the result of the vote before and votes again.
void WorkerSteps::read_vote_and_vote_again() {
  if (self_.votes > 0 && (generation().votes >> (self_.votes - 1) & 1U) != 0) {
    if (job_.scenario_->mirrored) {
      // A rank and its mirror may leave together.
      self_.temporary_commit = self_.standing.commits == 0;
      commit(self_.standing.commits + 1);
    }
    return shut_down();
  }
  for (const EncodedMessage& message : self_.inbox) {
    const detail::ElasticOrder order = detail::decode_elastic_order(*message.bytes);
    if (!std::holds_alternative<detail::Change>(order)) {
      throw Violation("protocol", "an answer to a worker that does not wait");
    }
    self_.change_ordered = true;
  }
  self_.inbox.clear();
  const int index = self_.votes++;
  if (self_.change_ordered || self_.asked) generation().votes |= 1U << index;
  arrive(Kind::vote, index);
  next_step();
}

void WorkerSteps::shut_down() { arrive(Kind::end, 0); }

void WorkerSteps::end() {
  auto& member = generation().members.at(static_cast<std::size_t>(self_.rank));
  member.in_peace = true;
  if (!self_.finished) return end_generation({});
  job_.say(number_, "has finished the program");
  job_.facts_.finished(self_, job_.samples_);
  member.left = true;
  self_.phase = Phase::leaving;
}

}  // namespace hvd::explore
