#include "net/control_router.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::net {
namespace {

// Ranks mostly send the same messages in the same order, so an equal one is found at once. The
// limit bounds the search where they do not.
constexpr std::uint64_t kEntriesSearched = 16;

}  // namespace

bool ControlRouter::reaches(int rank) const {
  if (rank_ == 0) return rank > 0 && rank < routes_.size();
  return rank == 0 || rank == routes_.parent(rank_) ||
         (rank > 0 && rank < routes_.size() && routes_.parent(rank) == rank_);
}

void ControlRouter::send(std::span<const int> to, std::span<const std::byte> message) {
  for (const int rank : to) {
    if (reaches(rank)) continue;
    throw Error(Errc::invalid_argument, fmt::format("no control stream leads to rank {}", rank));
  }
  if (rank_ == 0) return write_down(to, message);
  for (const int rank : to) {
    actions_.write(routes_.towards(rank_, rank), rank == 0 ? RankSet(rank_) : RankSet(), message);
  }
}

/// Writes one frame to each child that is one of the receivers or is above one.
void ControlRouter::write_down(std::span<const int> to, std::span<const std::byte> message) {
  std::map<int, RankSet> by_child;
  for (const int rank : to) by_child[routes_.towards(rank_, rank)].insert(rank);
  for (const auto& [child, ranks] : by_child) actions_.write(child, ranks, message);
}

void ControlRouter::receive(int neighbour, const RankSet& ranks,
                            std::span<const std::byte> message) {
  if (ranks.ranges().empty()) {
    if (rank_ == 0 || neighbour == 0) throw Error(Errc::protocol, "a message of no rank");
    return actions_.deliver({neighbour}, message);
  }
  if (rank_ == 0) return actions_.deliver(ranks.ranks(), message);
  if (neighbour != routes_.parent(rank_)) {
    return actions_.write(routes_.parent(rank_), ranks, message);
  }
  // The ranks below come first: the message may tell this rank to leave.
  std::vector<int> below = ranks.ranks();
  const bool for_this = below.front() == rank_;
  write_down(std::span(below).subspan(for_this ? 1 : 0), message);
  if (for_this) actions_.deliver({0}, message);
}

void CombiningQueue::push(const RankSet& senders, std::span<const std::byte> message) {
  const std::uint64_t end = popped_ + entries_.size();
  const std::vector<int> ranks = senders.ranks();
  std::uint64_t behind = 0;
  for (const int rank : ranks) behind = std::max(behind, behind_[rank]);
  std::uint64_t number = std::max(popped_, behind);
  const std::uint64_t limit = std::min(end, number + kEntriesSearched);
  const auto differs = [&](const Bytes& other) {
    return !std::equal(message.begin(), message.end(), other.begin(), other.end());
  };
  while (number < limit && differs(entries_[number - popped_].message)) ++number;
  if (number == limit) {
    number = end;
    entries_.push_back({{}, Bytes(message.begin(), message.end())});
    bytes_ += message.size();
  }
  for (const int rank : ranks) {
    entries_[number - popped_].senders.insert(rank);
    behind_[rank] = number + 1;
  }
}

CombiningQueue::Entry CombiningQueue::pop() {
  Entry oldest = std::move(entries_.front());
  entries_.pop_front();
  ++popped_;
  bytes_ -= oldest.message.size();
  return oldest;
}

}  // namespace hvd::net
