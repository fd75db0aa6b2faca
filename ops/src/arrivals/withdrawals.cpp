#include "arrivals/withdrawals.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace hvd {
namespace {

void raise(std::atomic<std::uint64_t>& highest, std::uint64_t ticket) noexcept {
  std::uint64_t seen = highest.load(std::memory_order_relaxed);
  while (seen < ticket && !highest.compare_exchange_weak(seen, ticket, std::memory_order_acq_rel)) {
  }
}

}  // namespace

void Withdrawals::withdraw(std::uint64_t last) noexcept {
  raise(withdrawn_, last);
  raise(mentioned_, last);
}

void Withdrawals::settle(std::span<const std::uint64_t> reached) {
  if (reached.empty()) return;
  const std::uint64_t last = *std::max_element(reached.begin(), reached.end());
  {
    const std::lock_guard lock(mutex_);
    if (last <= settled_) return;  // nobody came to anything since
    settled_ = last;
    forget_before(asked_.load(std::memory_order_relaxed));
    settlements_.push_back({last, {reached.begin(), reached.end()}});
  }
  raise(mentioned_, last);
}

void Withdrawals::forget_before(std::uint64_t ticket) {
  const auto old = [ticket](const Settlement& settlement) { return settlement.last < ticket; };
  settlements_.erase(settlements_.begin(),
                     std::find_if_not(settlements_.begin(), settlements_.end(), old));
}

Fate Withdrawals::of(std::uint64_t ticket, std::span<const int> members) {
  asked_.store(ticket, std::memory_order_relaxed);
  if (ticket > mentioned_.load(std::memory_order_acquire)) return Fate::open;
  const std::lock_guard lock(mutex_);
  forget_before(ticket);
  // Of those left the first was made when this ticket was young; later ones say nothing about it.
  if (!settlements_.empty()) {
    const std::vector<std::uint64_t>& reached = settlements_.front().reached;
    const bool all = std::all_of(members.begin(), members.end(), [&](int member) {
      const auto rank = static_cast<std::size_t>(member);
      return rank < reached.size() && reached[rank] >= ticket;
    });
    return all ? Fate::certain : Fate::dead;
  }
  return ticket <= withdrawn() ? Fate::given_up : Fate::open;
}

}  // namespace hvd
