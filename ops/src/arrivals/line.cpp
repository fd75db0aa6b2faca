#include "arrivals/line.hpp"

#include <algorithm>
#include <limits>
#include <optional>

namespace hvd {
namespace {

// Sequentially consistent where a rank that publishes and then looks whether another sleeps meets
// one that goes to sleep and then looks again: one of them must see the other.
constexpr auto kPublish = std::memory_order_seq_cst;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;

/// Empty when the rank has come to two other tickets since.
std::optional<std::uint64_t> digest_of(const ArrivalLine& line, std::uint64_t ticket) noexcept {
  for (const ArrivalLine::Recent& recent : line.recent) {
    if (recent.ticket.load(kAcquire) != ticket) continue;
    const std::uint64_t digest = recent.digest.load(kAcquire);
    if (recent.ticket.load(kAcquire) == ticket) return digest;
  }
  return std::nullopt;
}

struct GapsSeen {
  bool inside = false;      ///< the ticket is in a gap, or that cannot be told
  std::uint64_t until = 0;  ///< of the last gap
};

GapsSeen gaps_around(const ArrivalLine& line, std::uint64_t ticket) noexcept {
  constexpr GapsSeen kUnreadable{true, 0};
  const std::uint64_t version = line.gap_version.load(kAcquire);
  if (version % 2 != 0) return kUnreadable;
  GapsSeen seen;
  bool full = true;
  std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
  for (const ArrivalLine::Gap& gap : line.gaps) {
    const std::uint64_t after = gap.after.load(kAcquire);
    const std::uint64_t until = gap.until.load(kAcquire);
    seen.inside = seen.inside || (after < ticket && ticket <= until);
    seen.until = std::max(seen.until, until);
    full = full && until != 0;
    oldest = std::min(oldest, after);
  }
  const bool forgotten = full && ticket <= oldest;
  if (forgotten || line.gap_version.load(kAcquire) != version) return kUnreadable;
  return seen;
}

}  // namespace

void LineWriter::come(std::uint64_t ticket, std::uint64_t digest) noexcept {
  ArrivalLine::Recent& recent = line_.recent[next_recent_];
  next_recent_ = 1 - next_recent_;
  recent.ticket.store(0, std::memory_order_relaxed);
  recent.digest.store(digest, kRelease);
  recent.ticket.store(ticket, kRelease);
  arrived_.store(ticket, kRelease);
  line_.arrived.store(ticket, kPublish);
}

void LineWriter::skip(std::uint64_t after, std::uint64_t until) noexcept {
  if (until <= after) return;
  const std::lock_guard lock(mutex_);
  if (until <= until_) return;
  // What begins where the last gap begins is that one, grown.
  if (after != after_ || until_ == 0) newest_gap_ = (newest_gap_ + 1) % line_.gaps.size();
  after_ = after;
  until_ = until;
  line_.gap_version.store(++version_, std::memory_order_relaxed);
  ArrivalLine::Gap& gap = line_.gaps[newest_gap_];
  gap.after.store(after, kRelease);
  gap.until.store(until, kRelease);
  line_.gap_version.store(++version_, kRelease);
}

Presence presence(const ArrivalLine& line, std::uint64_t ticket, std::uint64_t digest, Fate fate,
                  std::uint64_t given_up) noexcept {
  const std::uint64_t arrived = line.arrived.load(kPublish);
  if (arrived < ticket) return Presence::pending;
  // No longer kept: then that rank has passed this ticket, and compared the digests itself.
  const std::optional<std::uint64_t> theirs = digest_of(line, ticket);
  if (theirs) return *theirs == digest ? Presence::came : Presence::differs;
  if (arrived == ticket || fate == Fate::certain) return Presence::came;

  const GapsSeen gaps = gaps_around(line, ticket);
  if (gaps.inside) return Presence::pending;
  if (fate == Fate::given_up && arrived > given_up && gaps.until < given_up) {
    return Presence::pending;
  }
  return Presence::came;
}

}  // namespace hvd
