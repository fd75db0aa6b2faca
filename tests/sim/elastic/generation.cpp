#include "elastic/generation.hpp"

#include <algorithm>

#include "elastic/job.hpp"

namespace hvd::sim::elastic {
namespace {

constexpr Nanos kFrozen = 1'800 * kMilli;
constexpr Nanos kHostSilent = 5 * kSecond;

}  // namespace

Generation::Generation(Job& job, std::uint32_t number, std::vector<int> workers)
    : standings(workers.size()),
      divisions(workers.size()),
      shards(workers.size()),
      job_(job),
      number_(number) {
  for (const int worker : workers) members_.push_back({.worker = worker});
}

void Generation::arrive(int rank, Kind kind, int index, std::function<void()> done) {
  job_.boundary();
  if (at(rank).left) return;
  const Key key{kind, index};
  Collective& collective = collectives_[key];
  collective.done.resize(members_.size());
  collective.completed.resize(members_.size());
  collective.done[static_cast<std::size_t>(rank)] = std::move(done);
  if (++collective.arrived < size()) return;
  if (kind == Kind::start) {
    for (const Member& a : members_) {
      for (const Member& b : members_) {
        if (job_.cut_since(job_.host_of(a.worker), job_.host_of(b.worker))) return;
      }
    }
  }
  for (int other = 0; other < size(); ++other) {
    job_.events.at(job_.events.now() + job_.transfer(at(other).worker), at(other).worker,
                   [this, other, key] { complete(other, key); });
  }
}

/// When a member is lost during a collective, it completes on some of the others and not on the
/// rest.
void Generation::complete(int rank, Key key) {
  job_.boundary();
  Member& self = at(rank);
  if (self.left || !job_.is_alive(self.worker)) return;
  Collective& collective = collectives_[key];
  for (int other = 0; other < size(); ++other) {
    if (other == rank || collective.completed[static_cast<std::size_t>(other)]) continue;
    const bool gone = at(other).left;
    if (!gone && !silent_since(rank, other)) continue;
    if (job_.random.chance(50)) continue;  // its part had come
    if (!gone) {
      job_.events.at(job_.events.now() + 50 * kMilli, self.worker,
                     [this, rank, key] { complete(rank, key); });
    }
    return;
  }
  collective.completed[static_cast<std::size_t>(rank)] = true;
  if (key.first == Kind::start) came_up(rank);
  const auto done = std::move(collective.done[static_cast<std::size_t>(rank)]);
  done();
}

void Generation::leave(int rank, const Blame& why, bool silent) {
  Member& self = at(rank);
  if (self.left) return;
  self.left = true;
  self.left_at = job_.events.now();
  self.why = why;
  self.silent = silent;
  const auto end = collectives_.find({Kind::end, 0});
  if (end != collectives_.end() && end->second.completed[static_cast<std::size_t>(rank)]) return;
  if (silent) return watch();
  for (int other = 0; other < size(); ++other) {
    if (other == rank || at(other).left || !at(other).up) continue;
    job_.events.at(job_.events.now() + job_.random.spread(20 * kMicro, 200 * kMilli),
                   at(other).worker, [this, other, rank] { lose(other, rank, false); });
  }
}

void Generation::came_up(int rank) {
  at(rank).up = true;
  for (int other = 0; other < size(); ++other) {
    if (!at(other).left || at(other).silent) continue;
    job_.events.at(job_.events.now() + job_.random.spread(20 * kMicro, 200 * kMilli),
                   at(rank).worker, [this, other, rank] { lose(rank, other, false); });
  }
  watch();
}

int Generation::missing() const {
  const auto start = collectives_.find({Kind::start, 0});
  int found = -1;
  for (int rank = 0; rank < size(); ++rank) {
    if (start != collectives_.end() && start->second.done[static_cast<std::size_t>(rank)]) continue;
    if (found >= 0) return -1;
    found = rank;
  }
  return found;
}

bool Generation::has_only_stopped() const {
  return std::all_of(members_.begin(), members_.end(), [this](const Member& one) {
    return !job_.is_alive(one.worker) || job_.paused_since(one.worker);
  });
}

// ---- losses

void Generation::watch() {
  for (int observer = 0; observer < size(); ++observer) {
    if (!at(observer).up || at(observer).left) continue;
    for (int victim = 0; victim < size(); ++victim) {
      if (victim == observer || !silent_since(observer, victim)) continue;
      job_.events.at(*silent_since(observer, victim) + patience(victim), at(observer).worker,
                     [this, observer, victim] { check(observer, victim); });
    }
  }
}

Nanos Generation::patience(int victim) const {
  const Nanos tick = job_.random.between(0, 400 * kMilli);
  return tick + (job_.paused_since(at(victim).worker) ? kFrozen : kHostSilent);
}

std::optional<Nanos> Generation::silent_since(int observer, int victim) const {
  const Member& other = at(victim);
  if (other.left && other.silent) return other.left_at;
  if (other.left) return std::nullopt;
  if (const auto cut =
          job_.cut_since(job_.host_of(at(observer).worker), job_.host_of(other.worker))) {
    return cut;
  }
  return job_.paused_since(other.worker);
}

void Generation::check(int observer, int victim) {
  if (at(observer).left) return;
  auto since = silent_since(observer, victim);
  if (!since) return;
  // The time in which the observer did not run is not held against others.
  since = std::max(*since, job_.woke_at(at(observer).worker));
  const Nanos due = *since + patience(victim);
  if (job_.events.now() >= due) return lose(observer, victim, true);
  job_.events.at(due, at(observer).worker, [this, observer, victim] { check(observer, victim); });
}

void Generation::lose(int observer, int victim, bool silent) {
  job_.boundary();
  Member& self = at(observer);
  if (self.left || !self.up || !job_.is_alive(self.worker)) return;
  Blame blame{victim, !silent};
  // A rank that ends because of another one says which.
  const Blame& why = at(victim).why;
  if (!silent && why.rank >= 0 && job_.random.chance(75)) blame = why;
  const bool hears_rank_0 = !job_.cut_since(job_.host_of(self.worker), job_.host_of(at(0).worker));
  if (hears_rank_0) {
    if (verdict_ && job_.random.chance(80)) {
      blame = *verdict_;
    } else {
      verdict_ = blame;
    }
  }
  if (blame.rank == observer) blame = {};
  job_.worker(self.worker).fail(blame);
}

}  // namespace hvd::sim::elastic
