#include "elastic/worker.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <hvd/core/error.hpp>

#include "elastic/job.hpp"

namespace hvd::sim::elastic {

using detail::Assignment;
using detail::Leave;
using detail::StateSource;

namespace {

constexpr Nanos kStartTimeout = 30 * kSecond;

int number_in(const Assignment& assignment, std::string_view name) {
  for (const std::string& variable : assignment.variables) {
    if (variable.starts_with(name)) return std::stoi(variable.substr(name.size()));
  }
  throw Violation("protocol", "an assignment without a variable");
}

}  // namespace

Worker::Worker(Job& job, int number, std::size_t host) : job_(job), number_(number), host_(host) {
  model_.digest = job_.random.next();  // every program begins with other parameters
  model_.begin_epoch(0, job_.plan.samples);
}

void Worker::after(Nanos delay, std::function<void()> action) {
  job_.events.at(job_.events.now() + delay, number_, std::move(action));
}

void Worker::compute(Nanos delay, std::function<void()> action) {
  busy_ = true;
  after(delay, [this, action = std::move(action)] {
    busy_ = false;
    action();
  });
}

// ---- the process

void Worker::start() {
  after(job_.random.spread(kMilli, 4 * kSecond), [this] { say_waits({}); });
}

void Worker::die(int code, bool silent) {
  if (!alive_) return;
  alive_ = false;
  job_.trace.say(job_.events.now(), number_, "ends with {}", code);
  job_.events.kill(number_);
  if (generation_ != nullptr) generation_->leave(rank_, {}, silent);
  if (!silent) job_.driver.exited(number_, code);
}

void Worker::pause(Nanos until) {
  if (paused_since()) return;
  struck_ = true;
  paused_at_ = job_.events.now();
  paused_until_ = until;
  job_.events.stop(number_, until);
}

std::optional<Nanos> Worker::paused_since() const {
  if (!alive_ || job_.events.now() >= paused_until_) return std::nullopt;
  return paused_at_;
}

Nanos Worker::woke_at() const { return paused_until_ <= job_.events.now() ? paused_until_ : 0; }

void Worker::exit_later() {
  phase_ = Phase::leaving;
  after(job_.random.spread(kMilli, 2 * kSecond), [this] { die(0); });
}

// ---- ElasticWorker

void Worker::ask_to_leave() {
  if (phase_ == Phase::loading) return die(143);
  asked_ = true;
  after(job_.random.between(0, 50 * kMilli), [this] {
    if (phase_ == Phase::waiting && !waits_.leaves) tell();
  });
}

void Worker::say_waits(const Blame& blame) {
  phase_ = Phase::waiting;
  waits_ = {.generation = number_of_generation_,
            .blames = blame.rank,
            .blamed_left = blame.rank >= 0 && blame.left,
            .start_failed = number_of_generation_ > 0 && !synchronized_};
  tell();
  read_orders();
}

void Worker::tell() {
  waits_.leaves = asked_;
  job_.trace.say(job_.events.now(), number_, "waits after {}, blames {}{}{}{}", waits_.generation,
                 waits_.blames, waits_.blamed_left ? " (left)" : "",
                 waits_.leaves ? ", leaves" : "", waits_.start_failed ? ", not started" : "");
  job_.driver.send(number_, encode(waits_));
}

void Worker::on_order(const Bytes& packet) {
  inbox_.push_back(packet);
  after(job_.local(host_), [this] {
    if (phase_ == Phase::waiting) read_orders();
    if (phase_ == Phase::starting) interrupt();
  });
}

void Worker::read_orders() {
  while (phase_ == Phase::waiting && !inbox_.empty()) {
    const detail::ElasticOrder order = detail::decode_elastic_order(inbox_.front());
    inbox_.pop_front();
    if (std::holds_alternative<Leave>(order)) {
      exit_later();
    } else if (const auto* assignment = std::get_if<Assignment>(&order)) {
      take(*assignment);
    }
  }
}

void Worker::take(const Assignment& assignment) {
  if (assignment.generation <= number_of_generation_) {
    throw Violation("protocol", "an assignment to an earlier generation");
  }
  number_of_generation_ = assignment.generation;
  rank_ = number_in(assignment, "HVD_RANK=");
  generation_ = &job_.generation(assignment.generation);
  if (number_in(assignment, "HVD_SIZE=") != generation_->size()) {
    throw Violation("protocol", "another size");
  }
  phase_ = Phase::starting;
  synchronized_ = false;
  change_ordered_ = false;
  failure_.reset();
  step_ = votes_ = counted_ = 0;
  awaits_vote_ = false;
  job_.oracle.assigned(*this, assignment.generation, rank_);
  if (!inbox_.empty()) return interrupt();
  const std::uint32_t started = number_of_generation_;
  after(kStartTimeout, [this, started] {
    if (phase_ != Phase::starting || number_of_generation_ != started) return;
    Blame blame{generation_->missing(), false};
    if (blame.rank == rank_) blame = {};
    end_generation(blame);
  });
  generation_->arrive(rank_, Generation::Kind::start, 0, [this] { gather(); });
}

/// The start of a context ends when something can be read from the socket.
void Worker::interrupt() {
  if (!inbox_.empty()) end_generation({});
}

// ---- elastic_run and ElasticState

void Worker::gather() {
  phase_ = Phase::training;
  generation_->standings[static_cast<std::size_t>(rank_)] = standing_;
  for (const HeldShards& one : held_) {
    generation_->divisions[static_cast<std::size_t>(rank_)].push_back(one.division);
  }
  generation_->newest_division = std::max(generation_->newest_division, newest_division_);
  generation_->temporary_commit = generation_->temporary_commit || temporary_commit_;
  job_.oracle.gathers(number_of_generation_, standing_, model_, copy_.model);
  generation_->arrive(rank_, Generation::Kind::standings, 0, [this] { choose(); });
}

void Worker::choose() {
  std::vector<Standing> all = generation_->standings;
  newest_division_ = generation_->newest_division;
  temporary_commit_ = generation_->temporary_commit;
  StateSource& source = source_;
  try {
    source = detail::choose_source(all, generation_->divisions);
  } catch (const Error&) {
    job_.oracle.no_source(number_of_generation_);
    return die(1);
  }
  go_on_with_shards();
  if (!source.from_commit) standing_.steps = all[static_cast<std::size_t>(rank_)].steps;
  const Standing best = all[static_cast<std::size_t>(source.rank)];
  const bool is_source = rank_ == source.rank;
  const bool is_there = source.from_commit ? standing_.commits == best.commits : standing_ == best;
  const bool is_untrained = best.steps == 0 && best.iterations == 0 && best.commits == 0;
  if (is_there && source.from_commit) {
    model_ = copy_.model;
    progress_ = copy_.progress;
  } else if (is_there && standing_.kind == Standing::whole) {
    // It puts its snapshot back.
  } else if (is_source) {
    standing_.kind = Standing::whole;
    agreed_ = true;  // nothing has changed since
  } else {
    model_.digest ^= job_.random.next();
    if (!is_untrained) standing_.kind = Standing::damaged;
    model_.damaged = !is_untrained;
  }
  const bool all_have_it =
      !source.from_commit && best.kind == Standing::whole &&
      std::all_of(all.begin(), all.end(), [&](const Standing& one) { return one == best; });
  if (all_have_it) return assemble();
  if (is_source) {
    generation_->sent = {model_, standing_, progress_};
    job_.sends_state(number_);
  }
  generation_->arrive(rank_, Generation::Kind::state, 0, [this] { receive(); });
}

void Worker::receive() {
  model_ = generation_->sent.model;
  progress_ = generation_->sent.progress;
  standing_.steps = generation_->sent.standing.steps;
  standing_.iterations = generation_->sent.standing.iterations;
  assemble();
}

/// Makes the step that others have made, and forgets the divisions that are not used.
void Worker::go_on_with_shards() {
  const std::int64_t used = source_.from_commit ? 0 : source_.division;
  std::erase_if(held_, [used](const HeldShards& one) { return one.division.number != used; });
  for (HeldShards& held : held_) {
    if (held.division.pending != 0 && held.division.steps < source_.division_steps) {
      model_ = held.pending;
      held.digest = model_.digest;
      ++held.division.steps;
    }
    held.division.pending = 0;
    generation_->shards[static_cast<std::size_t>(rank_)] = held;
  }
}

/// The parameters come from the shards, not from the rank that sends the rest of the state.
void Worker::assemble() {
  if (source_.from_commit || source_.division == 0) return begin_generation();
  if (rank_ == source_.shards[source_.shards.size() / 2].rank) job_.sends_state(number_);
  generation_->arrive(rank_, Generation::Kind::shards, 0, [this] {
    for (std::size_t shard = 0; shard < source_.shards.size(); ++shard) {
      const auto [rank, is_mirror] = source_.shards[shard];
      const HeldShards& sent = generation_->shards[static_cast<std::size_t>(rank)];
      const bool is_whole = sent.digest == model_.digest && sent.has(shard, is_mirror);
      if (!is_whole) model_.digest = splitmix64(model_.digest);  // that of no step
    }
    begin_generation();
  });
}

void Worker::begin_generation() {
  std::int64_t commits = 0;
  for (const Standing& one : generation_->standings) commits = std::max(commits, one.commits);
  standing_.kind = Standing::whole;
  standing_.certain = 1;
  agreed_ = false;
  finished_ = false;
  synchronized_ = true;
  has_had_state_ = true;
  model_.interrupt();
  epoch_ = progress_.epoch;
  recorded_ = progress_.recorded;
  if (job_.plan.mirrored) {
    const bool of_nothing = !source_.from_commit && source_.division == 0;
    newest_division_ = of_nothing ? 1 : newest_division_ + 1;
    current_ = {
        .division = {.number = newest_division_, .rank = rank_, .ranks = generation_->size()},
        .digest = model_.digest};
  }
  if (std::exchange(temporary_commit_, false)) {
    standing_.commits = 0;
  } else if (commits > 0 || !job_.plan.certain) {
    commit(commits + 1);
  }
  job_.oracle.synchronized(*this, number_of_generation_, standing_, model_);
  next_step();
}

void Worker::commit(std::int64_t number) {
  copy_ = {model_, progress_};
  standing_.commits = number;
}

void Worker::fail(const Blame& blame) {
  if (phase_ != Phase::training || failure_) return;
  if (busy_) {
    failure_ = blame;
  } else {
    end_generation(blame);
  }
}

void Worker::end_generation(const Blame& blame) {
  phase_ = Phase::ending;
  if (current_.division.number != 0) held_.push_back(std::exchange(current_, {}));
  if (standing_.kind == Standing::whole) {
    standing_.certain = agreed_ || job_.plan.certain ? 1 : 0;
    model_.damaged = standing_.certain == 0;
  }
  generation_->leave(rank_, blame, false);
  after(job_.local(host_), [this, blame] { say_waits(blame); });
}

// ---- the training loop

SampleSet Worker::next_batch() const {
  SampleSet batch = 0;
  int count = job_.plan.batch * generation_->size();
  for (int i = 0; i < job_.plan.samples && count > 0; ++i) {
    if ((recorded_ >> i & 1U) != 0) continue;
    batch |= SampleSet{1} << i;
    --count;
  }
  return batch;
}

void Worker::next_step() {
  if (next_batch() == 0) {
    if (epoch_ + 1 == job_.plan.epochs) {
      finished_ = true;
      return shut_down();
    }
    ++epoch_;
    recorded_ = 0;
  }
  const bool long_one = job_.random.chance(1);
  compute(long_one ? job_.random.spread(kSecond, 4 * kSecond)
                   : job_.random.spread(100 * kMicro, 30 * kMilli),
          [this] {
            if (failure_) return end_generation(*failure_);
            const SampleSet batch = next_batch();
            if (!job_.plan.mirrored) return decide(batch);
            generation_->arrive(rank_, Generation::Kind::gradients, step_, [this, batch] {
              current_.pending = stepped(batch);
              current_.division.pending = 1;
              decide(batch);
            });
          });
}

/// When the collective completes here, the step is made, with mirrors or without.
void Worker::decide(SampleSet batch) {
  generation_->arrive(rank_, Generation::Kind::step, step_, [this, batch] { applied(batch); });
}

Model Worker::stepped(SampleSet batch) const {
  Model model = model_;
  if (model.epoch != epoch_) model.begin_epoch(epoch_, job_.plan.samples);
  model.apply(number_of_generation_, batch);
  return model;
}

void Worker::applied(SampleSet batch) {
  if (model_.epoch != epoch_) job_.oracle.epoch_is_over(*this, model_);
  model_ = stepped(batch);
  if (job_.plan.mirrored) {
    held_.clear();  // all ranks have the division in which they step now
    ++current_.division.steps;
    current_.division.pending = 0;
    current_.digest = model_.digest;
  }
  ++standing_.steps;
  job_.oracle.step_completed(*this, number_of_generation_, step_, model_);
  ++step_;
  // A metric is reduced between the step and the end of the iteration.
  compute(job_.local(host_), [this, batch] {
    if (job_.plan.batch != 1) return end_iteration(batch);
    if (failure_) return end_generation(*failure_);
    generation_->arrive(rank_, Generation::Kind::metric, step_,
                        [this, batch] { end_iteration(batch); });
  });
}

void Worker::end_iteration(SampleSet batch) {
  ++standing_.iterations;
  recorded_ |= batch;
  progress_ = {epoch_, recorded_};
  model_.open = 0;
  if (!job_.plan.certain && model_.steps % job_.plan.commit_every == 0) {
    commit(standing_.commits + 1);
  }
  if (failure_) return end_generation(*failure_);
  vote();
}

void Worker::vote() {
  awaits_vote_ = counted_ < votes_;
  if (!awaits_vote_) count_votes();
}

/// As `Context::agree_on_change`: reads the result of the vote before and votes again.
void Worker::count_votes() {
  if (votes_ > 0 && generation_->votes[votes_ - 1]) {
    agreed_ = true;
    if (job_.plan.mirrored) {
      // A rank and its mirror may leave together.
      temporary_commit_ = standing_.commits == 0;
      commit(standing_.commits + 1);
    }
    return shut_down();
  }
  for (; !inbox_.empty(); inbox_.pop_front()) {
    if (!std::holds_alternative<detail::Change>(detail::decode_elastic_order(inbox_.front()))) {
      throw Violation("protocol", "an answer to a worker that does not wait");
    }
    change_ordered_ = true;
  }
  const int index = votes_++;
  generation_->votes[index] = generation_->votes[index] || change_ordered_ || asked_;
  generation_->arrive(rank_, Generation::Kind::vote, index, [this] {
    ++counted_;
    if (std::exchange(awaits_vote_, false)) count_votes();
  });
  next_step();
}

void Worker::shut_down() {
  if (failure_) return end_generation(*failure_);
  generation_->arrive(rank_, Generation::Kind::end, 0, [this] {
    if (!finished_) return end_generation({});
    job_.oracle.finished(*this, model_);
    generation_->leave(rank_, {}, false);
    exit_later();
  });
}

}  // namespace hvd::sim::elastic
