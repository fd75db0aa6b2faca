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

void FenceModel::come(int rank, const Job& job) {
  OfRank& mine = of(rank);
  if (job.sequence <= mine.sequence) {
    throw Violation("sequence numbers grow",
                    fmt::format("rank {}: {} after {}", rank, job.sequence, mine.sequence));
  }
  mine.sequence = job.sequence;
  mine.waits = true;
  if (cancelled(rank, job)) return end(rank, job.sequence, false, delays_.local(rank));

  std::vector<std::string> names;
  for (const auto& tensor : job.tensors) names.push_back(tensor->submission.request.name);
  const auto [stood_for, is_new] = digests_.try_emplace(job.digest, names);
  if (!is_new && stood_for->second != names) {
    throw Violation("digests tell collectives apart",
                    fmt::format("{} is {} and {}", job.digest, fmt::join(stood_for->second, ","),
                                fmt::join(names, ",")));
  }
  OpenFence& fence = open_[job.sequence];
  if (fence.here.empty()) {
    fence.members = job.members;
    fence.digest = job.digest;
  }
  if (fence.members != job.members || fence.digest != job.digest) {
    throw Violation(
        "equal collectives",
        fmt::format("rank {} came to sequence number {} with another one", rank, job.sequence));
  }
  fence.here.insert(rank);
  for (const int member : fence.members) {
    if (gone_.count(member) > 0 && member != rank) return fail(rank, job.sequence, member);
  }
  if (fence.here.size() < fence.members.size()) return;
  for (const int member : fence.members) {
    end(member, job.sequence, true, random_.spread(kMicro, kMilli));
  }
  open_.erase(job.sequence);
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

bool FenceModel::cancelled(int rank, const Job& job) const {
  // Uses the first settlement that covers this sequence number; later ones do not concern it.
  for (const auto& reached : of_[static_cast<std::size_t>(rank)].settlements) {
    if (*std::max_element(reached.begin(), reached.end()) < job.sequence) continue;
    return cancelled(reached, job.sequence, job.members);
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
