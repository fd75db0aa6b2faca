#include "fence_model.hpp"

#include <algorithm>

#include <fmt/ranges.h>

namespace hvd::sim {

using namespace detail;  // NOLINT: a test

FenceModel::FenceModel(int ranks, EventQueue& events, Delays& delays, Random& random,
                       Receiver receiver)
    : events_(events),
      delays_(delays),
      random_(random),
      receiver_(std::move(receiver)),
      of_(static_cast<std::size_t>(ranks)) {}

void FenceModel::come(int rank, const LocalBatch& batch) {
  OfRank& mine = of(rank);
  if (batch.sequence <= mine.sequence) {
    throw Violation("sequence numbers grow",
                    fmt::format("rank {}: {} after {}", rank, batch.sequence, mine.sequence));
  }
  mine.sequence = batch.sequence;
  mine.waits = true;
  if (cancelled(rank, batch)) return end(rank, batch.sequence, false, delays_.local(rank));

  std::vector<std::string> names;
  for (const auto& tensor : batch.tensors) names.push_back(tensor->submission.request.name);
  const auto [stood_for, is_new] = digests_.try_emplace(batch.digest, names);
  if (!is_new && stood_for->second != names) {
    throw Violation("digests tell collectives apart",
                    fmt::format("{} is {} and {}", batch.digest, fmt::join(stood_for->second, ","),
                                fmt::join(names, ",")));
  }
  OpenFence& fence = open_[batch.sequence];
  if (fence.here.empty()) {
    fence.members = batch.members;
    fence.digest = batch.digest;
  }
  if (fence.members != batch.members || fence.digest != batch.digest) {
    throw Violation(
        "equal collectives",
        fmt::format("rank {} came to sequence number {} with another one", rank, batch.sequence));
  }
  fence.here.insert(rank);
  for (const int member : fence.members) {
    if (gone_.count(member) > 0 && member != rank) return fail(rank, batch.sequence, member);
  }
  if (fence.here.size() < fence.members.size()) return;
  for (const int member : fence.members) {
    end(member, batch.sequence, true, random_.spread(kMicro, kMilli));
  }
  open_.erase(batch.sequence);
}

void FenceModel::end(int rank, std::uint64_t sequence, bool met, Nanos delay) {
  events_.at(events_.now() + delay, rank, [this, rank, sequence, met] {
    OfRank& mine = of(rank);
    if (!mine.waits || mine.sequence != sequence) return;
    mine.waits = false;
    receiver_.over(rank, met);
  });
}

void FenceModel::fail(int rank, std::uint64_t sequence, int gone) {
  events_.at(events_.now() + random_.spread(100 * kMicro, 80 * kMilli), rank,
             [this, rank, sequence, gone] {
               OfRank& mine = of(rank);
               if (!mine.waits || mine.sequence != sequence) return;
               mine.waits = false;
               receiver_.failed(rank, {Errc::peer_lost, gone});
             });
}

bool FenceModel::cancelled(const std::vector<std::uint64_t>& reached, std::uint64_t sequence,
                           const std::vector<int>& members) {
  return std::any_of(members.begin(), members.end(), [&](int member) {
    return reached[static_cast<std::size_t>(member)] < sequence;
  });
}

bool FenceModel::cancelled(int rank, const LocalBatch& batch) const {
  // Uses the first settlement that covers this sequence number; later ones do not concern it.
  for (const auto& reached : of_[static_cast<std::size_t>(rank)].settlements) {
    if (*std::max_element(reached.begin(), reached.end()) < batch.sequence) continue;
    return cancelled(reached, batch.sequence, batch.members);
  }
  return false;
}

void FenceModel::settle(int rank, const std::vector<std::uint64_t>& reached) {
  OfRank& mine = of(rank);
  mine.settlements.push_back(reached);
  const auto fence = open_.find(mine.sequence);
  if (!mine.waits || fence == open_.end()) return;
  if (mine.sequence > *std::max_element(reached.begin(), reached.end())) return;
  if (!cancelled(reached, mine.sequence, fence->second.members)) return;
  end(rank, mine.sequence, false, delays_.local(rank));
}

void FenceModel::dropped(int rank) {
  of(rank).waits = false;
  for (auto& [sequence, fence] : open_) fence.here.erase(rank);
}

void FenceModel::gone(int rank) {
  if (!gone_.insert(rank).second) return;
  for (const auto& [sequence, fence] : open_) {
    if (!std::binary_search(fence.members.begin(), fence.members.end(), rank)) continue;
    for (const int member : fence.here) {
      if (gone_.count(member) == 0) fail(member, sequence, rank);
    }
  }
}

}  // namespace hvd::sim
