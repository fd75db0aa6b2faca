#include "explored_worker.hpp"

#include <algorithm>
#include <utility>

namespace hvd::explore {
namespace {

using sim::elastic::HeldShards;
using sim::elastic::Model;
using sim::elastic::Progress;

/// Adds words of a state. Structured bindings name every member of a class.
struct Adder {
  StateHasher& hasher;
  int samples;

  template <class... T>
  void words(const T&... values) const {
    (hasher.word(static_cast<std::uint64_t>(values)), ...);
  }
  void add(const detail::Standing& standing) const {
    const auto& [kind, certain, steps, iterations, commits] = standing;
    words(kind, certain, steps, iterations, commits);
  }
  void add(const Progress& progress) const {
    const auto& [epoch, recorded] = progress;
    words(epoch, recorded);
  }
  void add(const Model& model) const {
    const auto& [digest, damaged, steps, epoch, used, allowed, open] = model;
    words(digest, damaged, steps, epoch, open);
    for (int i = 0; i < samples; ++i) {
      const auto at = static_cast<std::size_t>(i);
      words(used[at] * 256 + allowed[at]);
    }
  }
  void add(const detail::Division& division) const {
    const auto& [number, rank, ranks, steps, pending] = division;
    words(number, rank, ranks, steps, pending);
  }
  void add(const HeldShards& held) const {
    const auto& [division, digest, pending] = held;
    add(division);
    words(digest);
    if (division.pending != 0) add(pending);
  }
  template <class T>
  void add(const std::vector<T>& all) const {
    words(all.size());
    for (const T& one : all) add(one);
  }
  void add(const EncodedMessage& message) const { hasher.add(message.hash); }
  void add(const detail::StateSource& source) const {
    const auto& [rank, from_commit, shards_lost, division, steps, shards] = source;
    words(rank, from_commit, shards_lost, division, steps, shards.size());
    for (const auto& [of, is_mirror] : shards) words(of, is_mirror);
  }
};

}  // namespace

EncodedMessage::EncodedMessage(Bytes encoded)
    : bytes(std::make_shared<const Bytes>(std::move(encoded))) {
  StateHasher hasher;
  for (const std::byte byte : *bytes) hasher.word(static_cast<std::uint64_t>(byte));
  hash = hasher.hash();
}

void ExploredWorker::add_to(StateHasher& hasher, Clock::time_point now, int samples) const {
  const Adder adder{hasher, samples};
  adder.words(host, phase, was_paused, kill, report ? *report + 1 : 0);
  adder.add(to_hvdrun);
  adder.words(heard, assigned, told_to_leave, known_over, blamed_at.has_value(),
              blamed_at ? (now - *blamed_at).count() : 0);
  adder.words(has_had_state, asked);
  if (phase == Phase::over) return;
  adder.words(paused_at.has_value(), paused_at ? (now - *paused_at).count() : 0);
  adder.add(to_worker);
  adder.add(inbox);
  const auto& [after, blames, blamed_left, leaves, start_failed] = waits;
  if (phase == Phase::waiting) adder.words(after, blames, blamed_left, leaves, start_failed);
  adder.words(change_ordered, generation, rank);
  if (phase == Phase::starting) adder.words((start_ends - now).count());
  adder.add(standing);
  adder.add(model);
  adder.add(progress);
  if (standing.commits > 0) {
    adder.add(commit_model);
    adder.add(commit_progress);
  }
  adder.add(source);
  adder.add(held);
  adder.add(current);
  adder.words(newest_division, temporary_commit, synchronized, computing,
              awaits ? static_cast<int>(*awaits) : -1, finished, recorded, batch, step, votes,
              counted);
}

ExploredGeneration::ExploredGeneration(std::uint32_t of_number, const std::vector<int>& workers)
    : number(of_number),
      standings(workers.size()),
      divisions(workers.size()),
      shards(workers.size()) {
  for (const int worker : workers) members.push_back({.worker = worker});
}

auto ExploredGeneration::collective(CollectiveKind kind, int index) -> Collective& {
  // One that has completed everywhere is not needed any more, except the start and the end.
  std::erase_if(collectives, [this](const Collective& one) {
    const bool stays = one.kind == CollectiveKind::start || one.kind == CollectiveKind::end;
    return !stays && one.completed == everybody();
  });
  const auto at = std::lower_bound(
      collectives.begin(), collectives.end(), std::pair(kind, index),
      [](const Collective& one, const auto& key) { return std::pair(one.kind, one.index) < key; });
  if (at != collectives.end() && at->kind == kind && at->index == index) return *at;
  return *collectives.insert(at, {.kind = kind, .index = index});
}

bool ExploredGeneration::may_complete(CollectiveKind kind, int index, int rank) const {
  return std::any_of(collectives.begin(), collectives.end(), [&](const Collective& one) {
    return one.kind == kind && one.index == index && one.arrived == everybody() &&
           (one.completed >> rank & 1U) == 0;
  });
}

void ExploredGeneration::add_to(StateHasher& hasher, int samples) const {
  const Adder adder{hasher, samples};
  adder.words(number, members.size());
  for (const auto& [worker, up, left, in_peace, why] : members) {
    adder.words(worker, up, left, in_peace, why.rank, why.left);
  }
  adder.words(collectives.size());
  for (const auto& [kind, index, arrived, completed] : collectives) {
    adder.words(kind, index, arrived, completed);
  }
  adder.add(standings);
  adder.add(divisions);
  adder.words(newest_division, temporary_commit);
  adder.add(shards);
  adder.add(sent_model);
  adder.add(sent_standing);
  adder.add(sent_progress);
  adder.words(votes);
}

}  // namespace hvd::explore
