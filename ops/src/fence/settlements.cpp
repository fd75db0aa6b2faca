#include "fence/settlements.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {

void Settlements::settle(std::span<const std::uint64_t> reached) {
  if (reached.empty()) return;
  const std::uint64_t last = *std::max_element(reached.begin(), reached.end());
  const std::lock_guard lock(mutex_);
  if (last <= settled_) return;  // no rank has reached a later operation
  settled_ = last;
  forget_before(asked_.load(std::memory_order_relaxed));
  settlements_.push_back({last, {reached.begin(), reached.end()}});
  mentioned_.store(last, std::memory_order_relaxed);
}

void Settlements::forget_before(std::uint64_t sequence) {
  const auto old = [sequence](const Settlement& settlement) { return settlement.last < sequence; };
  settlements_.erase(settlements_.begin(),
                     std::find_if_not(settlements_.begin(), settlements_.end(), old));
}

FenceOutcome Settlements::of(std::uint64_t sequence, std::span<const int> members) {
  asked_.store(sequence, std::memory_order_relaxed);
  if (!mention(sequence)) return FenceOutcome::open;
  const std::lock_guard lock(mutex_);
  forget_before(sequence);
  if (settlements_.empty()) return FenceOutcome::open;
  // The first settlement that is left is the first that covers this number. Later settlements do
  // not answer the question: a rank that skipped this operation may have reached later operations.
  const std::vector<std::uint64_t>& reached = settlements_.front().reached;
  const bool all = std::all_of(members.begin(), members.end(), [&](int member) {
    const auto rank = static_cast<std::size_t>(member);
    return rank < reached.size() && reached[rank] >= sequence;
  });
  return all ? FenceOutcome::runs : FenceOutcome::cancelled;
}

std::size_t position_in(std::span<const int> members, int rank, int size) {
  std::size_t position = members.size();
  int last = -1;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] <= last || members[i] >= size) {
      throw Error(Errc::invalid_argument, "members are not ascending ranks");
    }
    last = members[i];
    if (last == rank) position = i;
  }
  if (position == members.size()) {
    throw Error(Errc::invalid_argument, fmt::format("rank {} is not among the members", rank));
  }
  return position;
}

void check_order(std::uint64_t last, std::uint64_t sequence) {
  if (sequence > last) return;
  throw Error(Errc::invalid_argument, fmt::format("sequence number {} after {}", sequence, last));
}

}  // namespace hvd::detail
