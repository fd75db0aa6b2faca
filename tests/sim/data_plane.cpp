#include "data_plane.hpp"

#include <algorithm>

namespace hvd::sim {

using namespace detail;  // NOLINT: a test

DataPlane::DataPlane(int ranks, EventQueue& events, Delays& delays, Random& random, Oracle& oracle,
                     Trace& trace, Receiver receiver)
    : events_(events),
      delays_(delays),
      random_(random),
      oracle_(oracle),
      trace_(trace),
      receiver_(std::move(receiver)),
      next_(static_cast<std::size_t>(ranks)) {}

void DataPlane::start(int rank, const LocalBatch& batch) {
  const bool makes_set = batch.kind == OpKind::add_process_set;
  const bool takes_part =
      !makes_set || std::binary_search(batch.members.begin(), batch.members.end(), rank);
  if (batch.kind == OpKind::remove_process_set || !takes_part) {
    events_.at(events_.now() + delays_.transfer(rank), rank,
               [this, rank] { receiver_.finished(rank); });
    return;
  }
  const std::uint64_t number = next_[static_cast<std::size_t>(rank)][batch.process_set]++;
  Collective& collective = open_[{batch.process_set, number}];
  if (collective.members.empty()) {
    collective.members = makes_set ? batch.members : oracle_.members(batch.process_set);
    collective.batches.resize(collective.members.size());
  }
  const auto at = std::lower_bound(collective.members.begin(), collective.members.end(), rank);
  if (at == collective.members.end() || *at != rank) {
    throw Violation("members only",
                    fmt::format("rank {} runs a collective of set {}", rank, batch.process_set));
  }
  collective.batches[static_cast<std::size_t>(at - collective.members.begin())] = &batch;
  for (const int member : collective.members) {
    if (gone_.count(member) > 0 && member != rank) return fail(rank, collective, member);
  }
  if (++collective.here < collective.members.size()) return;
  ++collectives_;
  trace_.mix(static_cast<std::uint64_t>(batch.process_set) * 1'000'003 + number);
  if (!makes_set) oracle_.paired(collective.members, collective.batches);
  for (const int member : collective.members) {
    events_.at(events_.now() + delays_.transfer(member), member,
               [this, member] { receiver_.finished(member); });
  }
  open_.erase({batch.process_set, number});
}

void DataPlane::fail(int rank, const Collective& collective, int gone) {
  // The rank blames a neighbour that gave up, as if that one had failed.
  Blame blame{Errc::peer_lost, gone};
  if (random_.chance(30)) {
    blame.culprit = collective.members[random_.next() % collective.members.size()];
  }
  if (blame.culprit == rank) blame.culprit = -1;
  events_.at(events_.now() + random_.spread(100 * kMicro, 80 * kMilli), rank,
             [this, rank, blame] { receiver_.failed(rank, blame); });
}

void DataPlane::dropped(int rank) {
  for (auto& [key, collective] : open_) {
    const auto at = std::lower_bound(collective.members.begin(), collective.members.end(), rank);
    if (at == collective.members.end() || *at != rank) continue;
    const LocalBatch*& batch =
        collective.batches[static_cast<std::size_t>(at - collective.members.begin())];
    if (std::exchange(batch, nullptr)) --collective.here;
  }
}

void DataPlane::gone(int rank) {
  if (!gone_.insert(rank).second) return;
  for (const auto& [key, collective] : open_) {
    if (!std::binary_search(collective.members.begin(), collective.members.end(), rank)) continue;
    for (std::size_t place = 0; place < collective.members.size(); ++place) {
      const int member = collective.members[place];
      if (collective.batches[place] && gone_.count(member) == 0) fail(member, collective, rank);
    }
  }
}

}  // namespace hvd::sim
