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
  if (rank_ != 0) {
    for (const int rank : to) {
      actions_.write(routes_.towards(rank_, rank), rank == 0 ? RankSet(rank_) : RankSet(), message);
    }
    return;
  }
  std::map<int, RankSet> by_child;
  for (const int rank : to) by_child[routes_.towards(0, rank)].insert(rank);
  for (const auto& [child, ranks] : by_child) actions_.write(child, ranks, message);
}

void ControlRouter::receive(int neighbour, const RankSet& ranks,
                            std::span<const std::byte> message) {
  const bool from_parent = neighbour == routes_.parent(rank_);
  if (ranks.ranges().empty()) {
    if (rank_ == 0 || neighbour == 0) throw Error(Errc::protocol, "a message of no rank");
    return actions_.deliver(neighbour, message);
  }
  for (const int rank : ranks.ranks()) {
    if (rank_ == 0) {
      actions_.deliver(rank, message);
    } else if (!from_parent) {
      actions_.write(0, RankSet(rank), message);
    } else if (rank != rank_) {
      actions_.write(rank, RankSet(rank), message);
    }
  }
  // The members come first: the message may tell this rank to leave.
  if (from_parent && ranks.contains(rank_)) actions_.deliver(0, message);
}

void CombiningQueue::push(int sender, std::span<const std::byte> message) {
  const std::uint64_t end = popped_ + entries_.size();
  std::uint64_t& behind = behind_[sender];
  std::uint64_t number = std::max(popped_, behind);
  for (const std::uint64_t limit = std::min(end, number + kEntriesSearched); number < limit;
       ++number) {
    Entry& entry = entries_[number - popped_];
    if (!std::equal(message.begin(), message.end(), entry.message.begin(), entry.message.end())) {
      continue;
    }
    entry.senders.insert(sender);
    behind = number + 1;
    return;
  }
  entries_.push_back({RankSet(sender), Bytes(message.begin(), message.end())});
  bytes_ += message.size();
  behind = end + 1;
}

CombiningQueue::Entry CombiningQueue::pop() {
  Entry oldest = std::move(entries_.front());
  entries_.pop_front();
  ++popped_;
  bytes_ -= oldest.message.size();
  return oldest;
}

}  // namespace hvd::net
