#include "explored_rank.hpp"

#include <algorithm>

#include "state_reader.hpp"

namespace hvd::explore {
namespace {

using namespace detail;  // NOLINT: a test

Protocol::Settings settings_for(const Scenario& scenario, int rank) {
  using std::chrono::milliseconds;
  Protocol::Settings settings;
  settings.rank = rank;
  settings.size = scenario.ranks;
  settings.fusion_threshold = 1 << 20;
  settings.freeze_after = 2;
  settings.detector = {milliseconds(100), milliseconds(600), milliseconds(1'000),
                       milliseconds(200)};
  return settings;
}

}  // namespace

ExploredRank::ExploredRank(const Scenario& scenario, int which, Protocol::Actions& actions,
                           Clock::time_point now)
    : rank(which),
      size(scenario.ranks),
      protocol(settings_for(scenario, which), actions, now),
      table(std::make_unique<TensorTable>(which, scenario.ranks)) {
  outcomes.resize(scenario.programs[static_cast<std::size_t>(which)].size());
}

ExploredRank::ExploredRank(const ExploredRank& other)
    : RankFacts(other), rank(other.rank), size(other.size), protocol(other.protocol) {
  TensorCopies copies;
  table = StateReader::copy(*other.table, rank, size, copies);
  for (const LocalBatch& waiting : other.queue) queue.push_back(copies.of(waiting));
  batch = copies.of(other.batch);
}

StateHash ExploredRank::hash(Clock::time_point now) const {
  if (known_hash) return *known_hash;
  StateHasher hasher;
  const auto words = [&](auto... values) {
    (hasher.word(static_cast<std::uint64_t>(values)), ...);
  };
  const auto& [in_step, is_finished, is_closed, seen, results, posted, how, error, whom, has_left,
               replays, frozen_in, wanted_in, stop, thread, is_broken, in_phase, completes, nth,
               begun] = static_cast<const RankFacts&>(*this);
  words(in_step, is_finished, is_closed, seen, posted.size(), how, error, whom, has_left, replays,
        frozen_in, wanted_in, stop.size(), thread, is_broken, in_phase, completes, nth);
  for (const std::uint8_t result : results) words(result);
  for (const LoopTask& task : posted) words(task.kind, task.culprit);
  for (const std::uint64_t sequence : stop) words(sequence);
  for (const std::uint64_t count : begun) words(count);
  StateReader::read(hasher, protocol, now);
  StateReader::read(hasher, *table);
  words(queue.size());
  for (const LocalBatch& waiting : queue) StateReader::read(hasher, waiting);
  if (busy()) StateReader::read(hasher, batch);
  known_hash = hasher.hash();
  return *known_hash;
}

bool ExploredRank::can_take() const {
  return (executor == Executor::running || executor == Executor::draining) && !broken && !busy() &&
         (!queue.empty() || table->turn_ready());
}

/// Tells whether the coordinator would ask for a thaw after a while.
bool ExploredRank::waits_for_others() const {
  if (ending != Ending::none || !replaying || impatient == epoch) return false;
  const bool turn_waits = phase == Phase::taken || phase == Phase::at_fence;
  return turn_waits || table->held_back().has_value();
}

bool ExploredRank::has_pending() const {
  return std::find(outcomes.begin(), outcomes.end(), kPending) != outcomes.end();
}

}  // namespace hvd::explore
