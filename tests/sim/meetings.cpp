#include "meetings.hpp"

#include <algorithm>

#include <fmt/ranges.h>

namespace hvd::sim {

Meetings::Meetings(int ranks, EventQueue& events, Delays& delays, Random& random, Receiver receiver)
    : events_(events),
      delays_(delays),
      random_(random),
      receiver_(std::move(receiver)),
      of_(static_cast<std::size_t>(ranks)) {}

void Meetings::come(int rank, const Job& job) {
  OfRank& mine = of(rank);
  if (job.ticket <= mine.ticket) {
    throw Violation("tickets grow",
                    fmt::format("rank {}: {} after {}", rank, job.ticket, mine.ticket));
  }
  mine.ticket = job.ticket;
  mine.waits = true;
  if (dead(rank, job)) return end(rank, job.ticket, false, delays_.local(rank));

  std::vector<std::string> names;
  for (const auto& tensor : job.tensors) names.push_back(tensor->submission.request.name);
  const auto [stood_for, is_new] = digests_.try_emplace(job.digest, names);
  if (!is_new && stood_for->second != names) {
    throw Violation("digests tell collectives apart",
                    fmt::format("{} is {} and {}", job.digest, fmt::join(stood_for->second, ","),
                                fmt::join(names, ",")));
  }
  Meeting& meeting = open_[job.ticket];
  if (meeting.here.empty()) {
    meeting.members = job.members;
    meeting.digest = job.digest;
  }
  if (meeting.members != job.members || meeting.digest != job.digest) {
    throw Violation("equal collectives",
                    fmt::format("rank {} came to ticket {} with another one", rank, job.ticket));
  }
  meeting.here.insert(rank);
  for (const int member : meeting.members) {
    if (gone_.count(member) > 0 && member != rank) return fail(rank, job.ticket, member);
  }
  if (meeting.here.size() < meeting.members.size()) return;
  for (const int member : meeting.members) {
    end(member, job.ticket, true, random_.spread(kMicro, kMilli));
  }
  open_.erase(job.ticket);
}

void Meetings::end(int rank, std::uint64_t ticket, bool met, Nanos delay) {
  events_.at(events_.now() + delay, rank, [this, rank, ticket, met] {
    OfRank& mine = of(rank);
    if (!mine.waits || mine.ticket != ticket) return;
    mine.waits = false;
    receiver_.over(rank, met);
  });
}

void Meetings::fail(int rank, std::uint64_t ticket, int gone) {
  events_.at(events_.now() + random_.spread(100 * kMicro, 80 * kMilli), rank,
             [this, rank, ticket, gone] {
               OfRank& mine = of(rank);
               if (!mine.waits || mine.ticket != ticket) return;
               mine.waits = false;
               receiver_.failed(rank, {Errc::peer_lost, gone});
             });
}

bool Meetings::dead(const std::vector<std::uint64_t>& reached, std::uint64_t ticket,
                    const std::vector<int>& members) {
  return std::any_of(members.begin(), members.end(), [&](int member) {
    return reached[static_cast<std::size_t>(member)] < ticket;
  });
}

bool Meetings::dead(int rank, const Job& job) const {
  // Uses the first settlement that covers this ticket; later ones do not concern it.
  for (const auto& reached : of_[static_cast<std::size_t>(rank)].settlements) {
    if (*std::max_element(reached.begin(), reached.end()) < job.ticket) continue;
    return dead(reached, job.ticket, job.members);
  }
  return false;
}

void Meetings::settle(int rank, const std::vector<std::uint64_t>& reached) {
  OfRank& mine = of(rank);
  mine.settlements.push_back(reached);
  const auto meeting = open_.find(mine.ticket);
  if (!mine.waits || meeting == open_.end()) return;
  if (mine.ticket > *std::max_element(reached.begin(), reached.end())) return;
  if (!dead(reached, mine.ticket, meeting->second.members)) return;
  end(rank, mine.ticket, false, delays_.local(rank));
}

void Meetings::dropped(int rank) {
  of(rank).waits = false;
  for (auto& [ticket, meeting] : open_) meeting.here.erase(rank);
}

void Meetings::gone(int rank) {
  if (!gone_.insert(rank).second) return;
  for (const auto& [ticket, meeting] : open_) {
    if (!std::binary_search(meeting.members.begin(), meeting.members.end(), rank)) continue;
    for (const int member : meeting.here) {
      if (gone_.count(member) == 0) fail(member, ticket, rank);
    }
  }
}

}  // namespace hvd::sim
