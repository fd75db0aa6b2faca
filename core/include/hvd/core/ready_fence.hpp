// How ranks agree, without a coordinator, that all of them have come to an operation.
#pragma once

#include <cstdint>
#include <span>

#include <hvd/core/error.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// A fence before the data of an operation that was not negotiated. A rank publishes that it has
/// arrived, and touches no data before all members have: a rank that never comes cannot have been
/// sent anything, and those that wait can turn back.
///
/// One thread at a time calls `arrive_and_wait`; after it has thrown, it throws for good.
class ReadyFence {
 public:
  virtual ~ReadyFence() = default;

  /// Publishes to `members` (ascending, this rank among them) that this rank has arrived at the
  /// operation with the number `sequence`, and waits until all of them have. `digest` describes the
  /// operation: a member that has arrived with another one is Errc::protocol naming it. Sequence
  /// numbers are positive and grow from call to call; members may have skipped numbers of
  /// operations of which this rank was a member.
  /// Returns false only where `settle` has said that some member never arrives. Has no deadline: a
  /// member may be busy for minutes. Throws peer_lost naming the rank, and aborted.
  [[nodiscard]] virtual bool arrive_and_wait(std::uint64_t sequence, std::uint64_t digest,
                                             std::span<const int> members) = 0;
  /// Any thread. Of all operations up to the highest number of `reached` it is known how far every
  /// rank got: rank r has arrived or will still arrive at its operations up to reached[r] (0:
  /// none), and at none after. So every rank decides alike, early or late: `arrive_and_wait`
  /// returns false, soon, where some member does not reach the number, and where all do it waits
  /// for them. To be called on every rank before it arrives at a later operation. Does not block.
  virtual void settle(std::span<const std::uint64_t> reached) = 0;
  /// Any thread: a running `arrive_and_wait` and every later one throw Errc::aborted soon. Does not
  /// block.
  virtual void abort() noexcept = 0;
};

}  // namespace hvd
