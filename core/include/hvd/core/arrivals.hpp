// How ranks tell each other that they have come to an operation of a frozen schedule.
#pragma once

#include <cstdint>
#include <span>

#include <hvd/core/error.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// The header that goes before the data of an operation that was not negotiated. A rank says that
/// it has come to it, and touches no data before all members have said so: a rank that never comes
/// can not have been sent anything, and those that wait can turn back.
///
/// One thread at a time calls `meet`; after it has thrown, it throws for good.
class Arrivals {
 public:
  virtual ~Arrivals() = default;

  /// Says to `members` (ascending, this rank among them) that this rank has come to `ticket`, and
  /// waits until all of them have. `digest` describes the operation: a member that came with
  /// another one throws Errc::protocol naming it. Tickets are positive and grow from call to call;
  /// `withdraw`n ones are never used again, and members may have skipped tickets of which this rank
  /// was a member.
  /// Returns false only when `withdraw` or `settle` ended this ticket before all had come. Has no
  /// deadline: a member may be busy for minutes. Throws peer_lost naming the rank, and aborted.
  [[nodiscard]] virtual bool meet(std::uint64_t ticket, std::uint64_t digest,
                                  std::span<const int> members) = 0;
  /// Any thread. Nobody can come to `ticket` any more, nor to those before it that are not
  /// complete: a `meet` that waits for one of them, or comes later, returns false soon. Where this
  /// rank knows that all members have come it returns true all the same; but news from other hosts
  /// may be on its way, so what other members may have completed must be ended by `settle`. Does
  /// not block.
  virtual void withdraw(std::uint64_t ticket) noexcept = 0;
  /// Any thread. As `withdraw` for all tickets up to the highest of `reached`, where it is known
  /// how far everybody got: rank r has come or will still come to its tickets up to reached[r] (0:
  /// none) and to none after. So every rank decides alike, early or late: `meet` returns false
  /// where some member has not reached the ticket, and where all have it waits for them. To be
  /// called on every rank before it comes to a later ticket. Does not block.
  virtual void settle(std::span<const std::uint64_t> reached) {
    std::uint64_t last = 0;
    for (const std::uint64_t ticket : reached) last = last < ticket ? ticket : last;
    withdraw(last);
  }
  /// Any thread: a running `meet` and every later one throw Errc::aborted soon. Does not block.
  virtual void abort() noexcept = 0;
};

}  // namespace hvd
